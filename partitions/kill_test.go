package partitions

const childEnv = "HUBSTATE_PARTITIONS_CHILD"

func childMain() int { return 0 }
