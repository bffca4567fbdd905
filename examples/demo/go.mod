module github.com/nelkap/nelkap/examples/demo

go 1.26
