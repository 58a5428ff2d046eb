# `make NAME` runs scripts/NAME: `make demo docs test faults laws mutate lint bench simulate soak fuzz counterparts`.
.PHONY: demo docs test faults laws mutate lint bench simulate soak fuzz counterparts
demo docs test faults laws mutate lint bench simulate soak fuzz counterparts:
	scripts/$@
