module github.com/nelkap/nelkap/examples/order-fulfillment/stripe-stand-in

go 1.26
