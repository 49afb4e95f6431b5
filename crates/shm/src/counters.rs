//! Counters of the two ends of a ring.

/// The activity of a producer since it was connected.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProducerCounters {
    /// Messages sent; a batch counts as one.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Times that this producer slept because the ring was full.
    pub sleeps: u64,
    /// Times that this producer woke the consumer.
    pub wakes: u64,
}

/// The activity of the consumer since the ring was created, and the state of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ConsumerCounters {
    /// Messages received; a batch counts as one.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Slots without a message: their producers died or gave them up.
    pub abandoned: u64,
    /// Messages read before an earlier one of another producer.
    pub overtaking: u64,
    /// Times that the consumer slept because the ring was empty.
    pub sleeps: u64,
    /// Bytes reserved and not yet released.
    pub fill: u64,
    /// Bytes of the ring.
    pub capacity: u64,
}
