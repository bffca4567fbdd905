module github.com/nelkap/nelkap/e2e

go 1.27

replace (
	github.com/nelkap/nelkap => ..
	github.com/nelkap/nelkap/sdk/go => ../sdk/go
)

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/jackc/pgx/v5 v5.13.0
	github.com/nelkap/nelkap v0.0.0-00010101000000-000000000000
	github.com/nelkap/nelkap/sdk/go v0.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
