// Package weirfile reads limits from a file, so that they can be changed without a
// deployment:
//
//	policies:
//	  api:
//	    segments: [tenant, user]
//	    rules:
//	      tenant:
//	        by: [tenant]
//	        algorithm: token bucket
//	        capacity: 200
//	        refill: 100 per second
//	      user:
//	        algorithm: fixed window
//	        limit: 1000
//	        window: 1h
//	    plans:
//	      pro:
//	        user: {limit: 5000}
//	    overrides:
//	      - match: {tenant: acme}
//	        rules:
//	          tenant: {capacity: 500}
//	      - match: {tenant: acme, user: ann}
//	        plan: pro
//	      - match: {tenant: acme, user: bob}
//	        rules:
//	          user: {limit: 20000}
//
// A program loads the file once, and asks for the limiter of each request:
//
//	file, err := weirfile.Load("limits.yaml", nil)
//	if err != nil {
//		return err
//	}
//	limits, err := file.Limits(st)
//	if err != nil {
//		return err
//	}
//	go limits.Watch(ctx)
//	...
//	lim, err := limits.For(ctx, "api", account.Plan, weir.KeyOf("acme", "ann"))
//	if err != nil {
//		return err
//	}
//	res, err := lim.Allow(ctx, "acme", "ann")
package weirfile
