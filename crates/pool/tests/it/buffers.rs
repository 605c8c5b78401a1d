//! Buffers: what is reused, what is kept, what is zeroed.

use pool::{BUFFER_BYTES_MAX, BufferConfig, BufferPool, BufferStats};

fn stats(taken: u64, hits: u64, returned: u64, freed: u64) -> BufferStats {
    BufferStats { taken, hits, returned, freed }
}

#[test]
fn a_buffer_holds_what_was_asked_for_and_is_reused_within_its_class() {
    // (asked, capacity given, whether the same buffer serves the same request again)
    let table = [
        (0, 256, true),
        (256, 256, true),
        (257, 512, true),
        (4_096, 4_096, true),
        (4_097, 8_192, true),
        (BUFFER_BYTES_MAX, BUFFER_BYTES_MAX, true),
        (BUFFER_BYTES_MAX + 1, BUFFER_BYTES_MAX + 1, false),
    ];
    for (asked, capacity, reused) in table {
        let buffers = BufferPool::new(BufferConfig::default());
        let mut buffer = buffers.take(asked);
        assert_eq!((buffer.len(), buffer.capacity()), (0, capacity), "{asked}");
        buffer.push(7);
        let at = buffer.as_ptr();
        drop(buffer);
        let again = buffers.take(asked);
        assert!(again.is_empty(), "the next user sees nothing of it");
        // (One that was freed may come back from the allocator at the same address.)
        assert!(!reused || again.as_ptr() == at, "{asked}");
        drop(again);
        let (hits, freed) = if reused { (1, 0) } else { (0, 2) };
        assert_eq!(buffers.stats(), stats(2, hits, 2, freed), "{asked}");
    }
}

#[test]
fn a_buffer_that_grew_serves_the_class_it_grew_to() {
    let buffers = BufferPool::new(BufferConfig::default());
    let mut buffer = buffers.take(256);
    buffer.resize(5_000, 1);
    let at = buffer.as_ptr();
    drop(buffer);
    assert_eq!(buffers.take(4_096).as_ptr(), at);
}

#[test]
fn what_a_full_cache_can_not_keep_goes_to_the_overflow_and_then_away() {
    let bounds = BufferConfig {
        per_thread_max: 2,
        per_thread_bytes_max: 1 << 20,
        shared_bytes_max: 3 * 4_096,
    };
    let buffers = BufferPool::new(bounds);
    let many: Vec<_> = (0..8).map(|_| buffers.take(4_096)).collect();
    drop(many);
    // Two in the cache, three in the overflow.
    assert_eq!(buffers.stats(), stats(8, 0, 8, 3));
    let many: Vec<_> = (0..8).map(|_| buffers.take(4_096)).collect();
    assert_eq!(buffers.stats(), stats(16, 5, 8, 3));
    drop(many);
}

#[test]
fn buffers_travel_between_threads_and_outlive_them() {
    let buffers = BufferPool::new(BufferConfig::default());
    let taken = {
        let buffers = buffers.clone();
        std::thread::spawn(move || (0..10).map(|_| buffers.take(1_024)).collect::<Vec<_>>())
            .join()
            .unwrap()
    };
    // Another thread, which never took one itself, gives them back.
    std::thread::spawn(move || drop(taken)).join().unwrap();
    assert_eq!(buffers.stats(), stats(10, 0, 10, 0));
    let again: Vec<_> = (0..10).map(|_| buffers.take(1_024)).collect();
    assert_eq!(buffers.stats().hits, 10);
    drop(again);
}

/// What is in this process's memory: the kernel reads where safe code can not.
#[cfg(target_os = "linux")]
fn memory(at: *const u8, len: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;

    let mut bytes = vec![0xff; len];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut bytes, u64::try_from(at.addr()).unwrap()).unwrap();
    bytes
}

#[cfg(target_os = "linux")]
#[test]
fn a_secret_is_zeroed_on_return_and_other_buffers_are_not() {
    let buffers = BufferPool::new(BufferConfig::default());
    let mut secret = buffers.take_secret(300);
    assert_eq!(*secret, [0; 300]);
    secret.fill(0xaa);
    let at = secret.as_ptr();
    drop(secret);
    assert_eq!(memory(at, 300), [0; 300]);

    let mut plain = buffers.take(300);
    assert_eq!(plain.as_ptr(), at, "the cache kept it");
    plain.resize(300, 0xbb);
    drop(plain);
    assert_eq!(memory(at, 300), [0xbb; 300], "nothing is cleared that the next user overwrites");
}
