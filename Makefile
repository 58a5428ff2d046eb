# Names for the scripts: `make demo test faults lint bench simulate`.
.PHONY: demo test faults lint bench simulate
demo test faults lint bench simulate:
	scripts/$@
