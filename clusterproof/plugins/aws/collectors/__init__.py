"""What AWS is asked: one file per kind of evidence, each with `read(account, cluster)`."""
