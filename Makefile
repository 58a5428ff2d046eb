# Names for the scripts: `make demo test lint bench`.
.PHONY: demo test lint bench
demo test lint bench:
	scripts/$@
