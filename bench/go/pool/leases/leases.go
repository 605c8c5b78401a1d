// Package leases is a connection pool in the usual Go shape: one mutex, a slice of idle entries,
// a map of those in use, and a condition variable for those who wait. It is
// what our pool is compared with, so it does per operation what such pools do:
// the clock is read four times, nothing is allocated.
package leases

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

var errTimeout = errors.New("acquire: timeout")

// Conn is a pooled connection.
type Conn struct {
	Net      net.Conn
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

// Pool has limits and books of what is idle and what is leased.
type Pool struct {
	mu        sync.Mutex
	cond      *sync.Cond
	idle      []*Conn
	active    map[*Conn]struct{}
	waiting   int
	exhausted int64
	limits    limits
}

// Filled has n entries, each one end of an in-memory pipe that nobody reads.
func Filled(n int) *Pool {
	ends := make([]net.Conn, n)
	for i := range ends {
		ends[i], _ = net.Pipe()
	}
	return New(ends...)
}

// New holds these connections, all idle, and never makes another.
func New(ends ...net.Conn) *Pool {
	p := &Pool{active: make(map[*Conn]struct{}, len(ends))}
	p.limits = limits{max: len(ends), acquireTimeout: 30 * time.Second, maxLifetime: 30 * time.Minute, idleTimeout: 5 * time.Minute}
	p.cond = sync.NewCond(&p.mu)
	for _, end := range ends {
		p.idle = append(p.idle, &Conn{Net: end, created: time.Now(), lastUsed: time.Now()})
	}
	return p
}

// Acquire leases an idle connection, or waits for one.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	deadline := time.Now().Add(p.limits.acquireTimeout)
	p.mu.Lock()
	for {
		if n := len(p.idle); n > 0 {
			c := p.idle[n-1]
			p.idle = p.idle[:n-1]
			if time.Since(c.created) > p.limits.maxLifetime {
				c.Net.Close()
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

// Put gives a connection back.
func (p *Pool) Put(c *Conn) {
	p.mu.Lock()
	delete(p.active, c)
	c.lastUsed = time.Now()
	p.idle = append(p.idle, c)
	p.cond.Signal()
	p.mu.Unlock()
}

// Stats is what the pool says of itself.
type Stats struct {
	Tenant, Kind, Mode  string
	Active, Idle, Total int
	Waiting, Max, Min   int
	Exhausted           int64
}

// Stats reads the books.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Tenant: "tenant", Kind: "postgres", Mode: "transaction",
		Active: len(p.active), Idle: len(p.idle), Total: len(p.active) + len(p.idle),
		Waiting: p.waiting, Max: p.limits.max, Min: p.limits.min, Exhausted: p.exhausted,
	}
}
