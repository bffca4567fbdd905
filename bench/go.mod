module github.com/nelkap/nelkap/bench

go 1.27

require github.com/nelkap/nelkap/sdk/go v0.0.0

replace github.com/nelkap/nelkap/sdk/go => ../sdk/go
