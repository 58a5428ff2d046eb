# Names for the scripts: `make demo test faults mutate lint bench simulate soak counterparts`.
.PHONY: demo test faults mutate lint bench simulate soak counterparts
demo test faults mutate lint bench simulate soak counterparts:
	scripts/$@
