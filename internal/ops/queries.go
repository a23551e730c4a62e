package ops

const (
	// setSetting lasts for the session. Takes no lock.
	setSetting = `SELECT /* ops.setting */ set_config($1, $2, false)`
	// setRole is followed by the quoted name of the role: SET takes no parameters.
	setRole = `SET /* ops.role */ ROLE `
)
