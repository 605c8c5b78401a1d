//! Synchronisation primitives of the pool: the real ones or the model checker's.
//!
//! All shared state of this crate uses these names, so that the `model` feature checks the code
//! that ships.

#[cfg(not(feature = "model"))]
pub(crate) use real::{AtomicU32, AtomicU64, AtomicUsize, Mutex, fence, stripe_of_thread};
pub(crate) use std::sync::atomic::Ordering;

#[cfg(feature = "model")]
pub(crate) use model::{AtomicU32, AtomicU64, AtomicUsize, Mutex, fence, stripe_of_thread};

#[cfg(not(feature = "model"))]
mod real {
    pub(crate) use parking_lot::Mutex;
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

    /// Hands out stripe numbers to threads in the order in which they first use a pool.
    static THREADS_SEEN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

    thread_local! {
        /// This thread's number, or `usize::MAX` before its first use. A constant initial value
        /// keeps the access down to one load: no lazy initialisation and no destructor.
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Returns a small number that is the same on every call from one thread and spreads threads
    /// evenly.
    pub(crate) fn stripe_of_thread() -> usize {
        STRIPE.with(|stripe| match stripe.get() {
            usize::MAX => {
                let number = THREADS_SEEN.fetch_add(1, super::Ordering::Relaxed);
                stripe.set(number);
                number
            }
            number => number,
        })
    }
}

#[cfg(feature = "model")]
mod model {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

    /// `loom`'s mutex behind the interface of `parking_lot`'s. It can only be poisoned by a panic,
    /// which ends the model run anyway.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().expect("a panic ends the model run before anyone sees the poison")
        }
    }

    /// See the real one. It is the same in every run of a model, as replays require: threads are
    /// numbered as they are created.
    pub(crate) fn stripe_of_thread() -> usize {
        let name = format!("{:?}", loom::thread::current().id());
        name.bytes()
            .filter(u8::is_ascii_digit)
            .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    }
}
