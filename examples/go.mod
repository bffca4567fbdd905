module github.com/nelkap/nelkap/examples

go 1.26.0

ignore ./node_modules

replace github.com/nelkap/nelkap/sdk/go => ../sdk/go

require github.com/nelkap/nelkap/sdk/go v0.0.0
