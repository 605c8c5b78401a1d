// A connection pool in the usual Go shape: one mutex, a slice of idle entries,
// a map of those in use, and a condition variable for those who wait. It is
// what our pool is compared with, so it does per operation what such pools do:
// the clock is read four times, nothing is allocated.
package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

var errTimeout = errors.New("acquire: timeout")

type conn struct {
	net      net.Conn
	created  time.Time
	lastUsed time.Time
}

type limits struct {
	max            int
	min            int
	acquireTimeout time.Duration
	maxLifetime    time.Duration
	idleTimeout    time.Duration
}

type pool struct {
	mu        sync.Mutex
	cond      *sync.Cond
	idle      []*conn
	active    map[*conn]struct{}
	waiting   int
	exhausted int64
	limits    limits
}

// newPool holds n entries, each one end of an in-memory pipe that nobody reads.
func newPool(n int) *pool {
	p := &pool{active: make(map[*conn]struct{}, n)}
	p.limits = limits{max: n, acquireTimeout: 30 * time.Second, maxLifetime: 30 * time.Minute, idleTimeout: 5 * time.Minute}
	p.cond = sync.NewCond(&p.mu)
	for i := 0; i < n; i++ {
		end, _ := net.Pipe()
		p.idle = append(p.idle, &conn{net: end, created: time.Now(), lastUsed: time.Now()})
	}
	return p
}

func (p *pool) acquire(ctx context.Context) (*conn, error) {
	deadline := time.Now().Add(p.limits.acquireTimeout)
	p.mu.Lock()
	for {
		if n := len(p.idle); n > 0 {
			c := p.idle[n-1]
			p.idle = p.idle[:n-1]
			if time.Since(c.created) > p.limits.maxLifetime {
				c.net.Close()
				continue
			}
			c.lastUsed = time.Now()
			p.active[c] = struct{}{}
			p.mu.Unlock()
			return c, nil
		}
		if err := ctx.Err(); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		// Waiting costs a timer, because a condition variable has no deadline.
		p.waiting++
		p.exhausted++
		timer := time.AfterFunc(time.Until(deadline), p.cond.Broadcast)
		p.cond.Wait()
		timer.Stop()
		p.waiting--
		if len(p.idle) == 0 && !time.Now().Before(deadline) {
			p.mu.Unlock()
			return nil, errTimeout
		}
	}
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	delete(p.active, c)
	c.lastUsed = time.Now()
	p.idle = append(p.idle, c)
	p.cond.Signal()
	p.mu.Unlock()
}

type stats struct {
	tenant, kind, mode  string
	active, idle, total int
	waiting, max, min   int
	exhausted           int64
}

func (p *pool) stats() stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return stats{
		tenant: "tenant", kind: "postgres", mode: "transaction",
		active: len(p.active), idle: len(p.idle), total: len(p.active) + len(p.idle),
		waiting: p.waiting, max: p.limits.max, min: p.limits.min, exhausted: p.exhausted,
	}
}
