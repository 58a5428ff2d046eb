# Names for the scripts: `make demo docs test faults mutate lint bench simulate soak counterparts`.
.PHONY: demo docs test faults mutate lint bench simulate soak counterparts
demo docs test faults mutate lint bench simulate soak counterparts:
	scripts/$@
