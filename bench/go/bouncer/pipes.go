package main

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A pipe is what both legs of a relay run over; every way gives two connected
// ends.
type pipe struct {
	name string
	make func() (net.Conn, net.Conn)
}

var pipes = []pipe{
	// A write returns once it was read whole.
	{"rendezvous", net.Pipe},
	{"buffered", bufferedPair},
	// The only one with system calls.
	{"sockets", socketPair},
}

const bufferBytes = 64 << 10

// half is one direction of a buffered pipe.
type half struct {
	mu     sync.Mutex
	ready  sync.Cond
	bytes  []byte
	start  int
	length int
	closed bool
}

func newHalf() *half {
	h := &half{bytes: make([]byte, bufferBytes)}
	h.ready.L = &h.mu
	return h
}

func (h *half) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for written := 0; ; {
		if h.closed {
			return written, io.ErrClosedPipe
		}
		end := (h.start + h.length) % bufferBytes
		room := min(bufferBytes-h.length, bufferBytes-end)
		n := copy(h.bytes[end:end+room], p[written:])
		if n > 0 {
			h.length += n
			written += n
			h.ready.Broadcast()
		}
		if written == len(p) {
			return written, nil
		}
		if h.length == bufferBytes {
			h.ready.Wait()
		}
	}
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.length == 0 {
		if h.closed {
			return 0, io.EOF
		}
		h.ready.Wait()
	}
	n := copy(p, h.bytes[h.start:min(h.start+h.length, bufferBytes)])
	full := h.length == bufferBytes
	h.start = (h.start + n) % bufferBytes
	h.length -= n
	if full {
		h.ready.Broadcast()
	}
	return n, nil
}

func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.ready.Broadcast()
}

// buffered is one end; nothing here sets deadlines.
type buffered struct{ in, out *half }

func (b buffered) Read(p []byte) (int, error)       { return b.in.read(p) }
func (b buffered) Write(p []byte) (int, error)      { return b.out.write(p) }
func (b buffered) LocalAddr() net.Addr              { return nil }
func (b buffered) RemoteAddr() net.Addr             { return nil }
func (b buffered) SetDeadline(time.Time) error      { return nil }
func (b buffered) SetReadDeadline(time.Time) error  { return nil }
func (b buffered) SetWriteDeadline(time.Time) error { return nil }
func (b buffered) Close() error {
	b.in.close()
	b.out.close()
	return nil
}

func bufferedPair() (net.Conn, net.Conn) {
	one, two := newHalf(), newHalf()
	return buffered{one, two}, buffered{two, one}
}

func socketPair() (net.Conn, net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	must(err)
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		ends[i], err = net.FileConn(file)
		must(err)
		must(file.Close())
	}
	return ends[0], ends[1]
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
