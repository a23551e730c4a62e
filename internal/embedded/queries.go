package embedded

const (
	sqlDatabaseExists = `SELECT /* embedded.database_exists */ EXISTS (SELECT FROM pg_database WHERE datname = $1)`
	sqlCreateDatabase = `CREATE /* embedded.create_database */ DATABASE hubstate`
)
