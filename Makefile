# Names for the scripts: `make demo test faults lint bench`.
.PHONY: demo test faults lint bench
demo test faults lint bench:
	scripts/$@
