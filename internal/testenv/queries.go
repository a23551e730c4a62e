package testenv

// Names are ours (digits and lower case), never from outside; CREATE DATABASE takes no parameters.
const (
	sqlCreateEmpty        = `CREATE /* testenv.create_empty */ DATABASE %[1]s`
	sqlCreateFromTemplate = `CREATE /* testenv.create_from_template */ DATABASE %[1]s TEMPLATE %[2]s`
	sqlDrop               = `DROP /* testenv.drop */ DATABASE IF EXISTS %[1]s WITH (FORCE)`
)
