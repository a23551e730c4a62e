package monitor

import (
	"encoding/json"
	"strings"
)

// linkOf reads the words that devices use for being connected and not: VDA5050's connectionState, Sparkplug's births
// and deaths, Tasmota's LWT. Compared in lower case.
func linkOf(word string) Link {
	switch strings.ToLower(word) {
	case "online", "connected", "up", "birth", "true", "1":
		return LinkUp
	case "offline", "disconnected", "down", "death", "connectionbroken", "connection_broken", "hibernating", "false", "0":
		return LinkDown
	}
	return LinkUnknown
}

// ReadLink finds out of the state of a connection stream whether the device is connected. It looks at the members
// connectionState, connection, connected, online, status, state and value, in that order, as word or boolean.
func ReadLink(state []byte) Link {
	var members map[string]any
	if json.Unmarshal(state, &members) != nil {
		return LinkUnknown
	}
	for _, name := range [...]string{"connectionState", "connection", "connected", "online", "status", "state", "value"} {
		switch v := members[name].(type) {
		case bool:
			if v {
				return LinkUp
			}
			return LinkDown
		case string:
			if link := linkOf(v); link != LinkUnknown {
				return link
			}
		}
	}
	return LinkUnknown
}
