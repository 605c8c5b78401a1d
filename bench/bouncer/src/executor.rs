//! One thread that runs a few tasks, as a relay thread does: it polls ready tasks in turn, and
//! waits for sockets when none is ready. It allocates nothing after its tasks are created.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use mio::net::UnixStream;
use mio::{Events, Interest, Registry, Token};

/// Tasks are bits of a word.
const TASKS_MAX: usize = 64;
const EVENTS_MAX: usize = 16;

struct Ready {
    tasks: Arc<AtomicU64>,
    bit: u64,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.tasks.fetch_or(self.bit, Ordering::Relaxed);
    }
}

/// Socket event that a task waits for.
#[derive(Debug, Clone, Copy)]
pub enum Edge {
    Readable,
    Writable,
}

/// Tasks that wait for sockets to become readable and writable; the index is the token.
pub struct Sockets {
    registry: Registry,
    waiting: RefCell<Vec<[Option<Waker>; 2]>>,
}

impl Sockets {
    /// Watches a socket from now on; edge-triggered only.
    pub fn watch(&self, socket: &mut UnixStream) -> usize {
        let mut waiting = self.waiting.borrow_mut();
        let token = waiting.len();
        waiting.push([None, None]);
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(socket, Token(token), both).expect("watch a socket");
        token
    }

    /// Wakes the task at the socket's next edge of that kind.
    pub fn wait(&self, token: usize, edge: Edge, context: &Context<'_>) {
        match &mut self.waiting.borrow_mut()[token][edge as usize] {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }
}

pub struct Executor {
    poll: mio::Poll,
    events: Events,
    sockets: Rc<Sockets>,
    ready: Arc<AtomicU64>,
    tasks: Vec<(Waker, Pin<Box<dyn Future<Output = ()>>>)>,
    /// Waker of the main task, which differs with each run.
    main: Waker,
}

impl Executor {
    pub fn new() -> Executor {
        let poll = mio::Poll::new().expect("make an epoll");
        let registry = poll.registry().try_clone().expect("share it");
        let sockets = Rc::new(Sockets { registry, waiting: RefCell::default() });
        let ready = Arc::new(AtomicU64::new(0));
        let main = waker(&ready, 0);
        let events = Events::with_capacity(EVENTS_MAX);
        Executor { poll, events, sockets, ready, tasks: Vec::new(), main }
    }

    pub fn sockets(&self) -> Rc<Sockets> {
        Rc::clone(&self.sockets)
    }

    /// Adds a task that stays until the executor is dropped.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        let place = self.tasks.len() + 1;
        assert!(place < TASKS_MAX, "a task for each bit at most");
        let waker = waker(&self.ready, place);
        waker.wake_by_ref();
        self.tasks.push((waker, Box::pin(task)));
    }

    /// Runs all tasks until `main` is done.
    pub fn run<T>(&mut self, main: impl Future<Output = T>) -> T {
        let mut main = std::pin::pin!(main);
        self.main.wake_by_ref();
        loop {
            let ready = self.ready.swap(0, Ordering::Relaxed);
            if ready == 0 {
                self.wait();
            }
            for (place, (waker, task)) in self.tasks.iter_mut().enumerate() {
                if ready & (2 << place) != 0 {
                    // Tasks run until they are dropped; the end of one shows as a missing answer.
                    let _ = task.as_mut().poll(&mut Context::from_waker(waker));
                }
            }
            if ready & 1 != 0
                && let Poll::Ready(result) =
                    main.as_mut().poll(&mut Context::from_waker(&self.main))
            {
                return result;
            }
        }
    }

    fn wait(&mut self) {
        assert!(!self.sockets.waiting.borrow().is_empty(), "nothing can ever become ready");
        self.poll.poll(&mut self.events, None).expect("wait for sockets");
        let waiting = self.sockets.waiting.borrow();
        for event in &self.events {
            // A socket becomes writable each time the peer reads; that must not wake the reader.
            let [reader, writer] = &waiting[event.token().0];
            if event.is_readable()
                && let Some(waker) = reader
            {
                waker.wake_by_ref();
            }
            if event.is_writable()
                && let Some(waker) = writer
            {
                waker.wake_by_ref();
            }
        }
    }
}

fn waker(tasks: &Arc<AtomicU64>, place: usize) -> Waker {
    Waker::from(Arc::new(Ready { tasks: Arc::clone(tasks), bit: 1 << place }))
}
