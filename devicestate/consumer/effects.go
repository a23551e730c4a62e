package consumer

// Effects collects the writes of a batch that the Redis script makes for the events that pass the gate.
type Effects struct {
	groups []effectGroup
	latest map[string]int // key → its last group
	args   []any          // of the delivery being collected: group, count, arguments, …
}

// effectGroup is one command on one key with the arguments of many effects.
type effectGroup struct {
	command  string
	key      string
	variadic bool
}

// HSet writes a field of the hash at key.
func (e *Effects) HSet(key, field string, value []byte) {
	e.add(e.group("HSET", key), field, value)
}

// ZAdd sets the score of a member of the sorted set at key.
func (e *Effects) ZAdd(key string, score float64, member string) {
	e.add(e.group("ZADD", key), score, member)
}

// ZRem removes a member from the sorted set at key.
func (e *Effects) ZRem(key, member string) { e.add(e.group("ZREM", key), member) }

// HDel removes a field from the hash at key.
func (e *Effects) HDel(key, field string) { e.add(e.group("HDEL", key), field) }

// Do is any other write command with one key: string, []byte, integer or float arguments, at most 4,000. It costs a
// command of its own per event.
func (e *Effects) Do(command, key string, args ...any) {
	e.groups = append(e.groups, effectGroup{command: command, key: key})
	e.latest[key] = len(e.groups)
	e.add(len(e.groups), args...)
}

// group finds the open group of (command, key). A key that has been used with another command since gets a new one, later
// in the list: groups are executed in order, so the order of writes to a key is kept.
func (e *Effects) group(command, key string) int {
	if at, ok := e.latest[key]; ok && e.groups[at-1].command == command && e.groups[at-1].variadic {
		return at
	}
	e.groups = append(e.groups, effectGroup{command: command, key: key, variadic: true})
	e.latest[key] = len(e.groups)
	return len(e.groups)
}

func (e *Effects) add(group int, args ...any) {
	e.args = append(e.args, group, len(args))
	e.args = append(e.args, args...)
}
