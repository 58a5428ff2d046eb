"""Secrets of every kind, and sentences to plant them in."""

from __future__ import annotations

# By kind: what names somebody or something, in each form in which it stands in a text.
PLANTED: dict[str, tuple[str, ...]] = {
    "hosts": ("zephyr-7", "kestrel12", "osprey.zorg.example", "qlogin", "n00417", "rackZ-u07"),
    "ports of hosts": ("filer-a.zorg.example:2049", "[zorg-b]:22"),
    "hosts of common words": ("gpu-node-west", "training-cluster-a", "login-node-02", "data.storage.example"),
    "addresses": ("10.7.13.211", "172.31.9.14", "198.18.4.77", "8.8.4.21"),
    "addresses of IPv6": ("2600:1f18:77aa::9", "fe80::4c1:9ff:fe3a:71d2"),
    "AWS host names": ("ip-10-7-13-212.ec2.internal", "ec2-54-23-11-9.compute-1.amazonaws.com"),
    "MACs": ("0c:42:a1:77:1b:8a", "0C-42-A1-77-1B-8B", "0c42a1771b8c", "0c42.a177.1b8d", "00163e771234"),
    "MACs in names": ("enx0c42a1771b8e", "wlx0c42a1771b8f"),
    "GUIDs": ("0c42:a103:0077:1b8a", "0x0c42a10300771b8b", "0c42a10300771b8c"),
    "serials": ("1650523077001", "0322518027985", "SN7730A4415", "AWS24BBF51AF55077", "19fcda00f5ff7700", "J0K7QX3"),
    "UUIDs": ("6f2c1d7e-8a34-4c1b-9e55-0d9f6c2b7a77", "GPU-7f2c1d7e-8a34-4c1b-9e55-0d9f6c2b7a78"),
    "ids": ("d9b277d63d53b2410eb6b0a7b6c0c7a3", "4f1a9c3e7b2d5e8f10a2b3c477aa"),
    "accounts": ("123456778901", "1234-5677-8903", "arn:aws:iam::123456778902:role/Zorgmin", "AKIAIOSFODNN7ZORG77", "AIDA77ZORG"),
    "resources": ("i-0123456778abcdef0", "vpc-0aaaabbbb77ccdddd", "fs-0dc177bca81234567"),
    "networks": ("sg-77aaaabbbbccccddd", "eni-0a77bbccddeeff001", "subnet-0123477789abcdef0"),
    "keys": ("SHA256:" + "Zq7" * 14 + "Z", "AAAAB3NzaC1yc2EAAAADAQABAAABgQZorg", "nacl@zorg-laptop"),
    "users": ("zalice", "svc_zorg", "zbob@ZORG.EXAMPLE", "ZORG\\zcarol"),
    "buckets": ("zorg-corp-training-data", "s3://zorg-datasets/v2", "my-team-checkpoints"),
    "jobs and programs": ("zorg-gpt9-pretrain", "zorgd", "train_zorg.py", "zorg_llm_70b"),
    "units": ("zorg-agent.service", "acme-sync-data.timer", "zorgmon@7.service"),
    "Lustre": ("zfsxq77a", "zfsxq77b-OST0001-osc-ffff8a01", "zfsxq77c-MDT0000"),
    "paths": ("/home/zdora/run", "/fsx/zorg-project/ckpt", "/Users/zeve/.ssh/id_zorg", "/opt/zorg/bin/agent"),
    "letters of others": ("дарья", "zürich-7", "東京ノード"),
    "versions with names": ("6.8.0-zorgos+", "1.2.3+zorgbuild9"),
    "secrets": ("hunter2zorg", "wJalrXUtnFEMIzorg/K7MDENG", "xoxb-77-zorg"),
}  # fmt: skip
SECRETS = [(kind, secret) for kind, secrets in PLANTED.items() for secret in secrets]
SENTENCES = (
    "{}",
    "lost {} again",
    "peer={}, retry",
    "[{}] ({}): bad",
    "'{}' \"{}\" <{}>",
    "NVRM: Xid (PCI:0000:53:00): 31, pid=77, name={}, Ch 00000008",
    "NVRM: GPU at PCI:0000:53:00: {}",
    "NVRM: GPU Board Serial Number: {}",
    "nfs: server {} not responding, still trying",
    "Lustre: {}-OST0001-osc-ffff8a01b2c3d400: Connection to {} (at 10.1.2.3@tcp) was lost",
    "Out of memory: Killed process 77 ({}) total-vm:1kB",
    "INFO: task {}:77 blocked for more than 120 seconds.",
    "{}[77]: segfault at 7f00 ip 7f01 sp 7f02 error 4 in lib.so[7f00+1000]",
    "login as {}: Permission denied (publickey); user={} bucket={} job={}",
    "s3fs {} on /mnt type fuse.s3fs (rw,username={},secret={},addr={})",
    "nvidia_{}:x\t{}\n{};{}",
    "https://{}/{}?token={}",
    "0000:53:00.0 {} /dev/{} /etc/{}",
    "{{\"name\": \"{}\", \"serial\": \"{}\"}}",
)  # fmt: skip
