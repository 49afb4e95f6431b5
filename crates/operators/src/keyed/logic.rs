//! The user functions of a stateful map.

use ardea_core::Timestamp;

use crate::keyed::KeyedContext;

/// The user functions of a [`StatefulMapP`](crate::StatefulMapP), shared by all instances.
#[derive(Clone, Debug)]
pub struct KeyedLogic<KF, C, R, X> {
    /// Returns the key of a record: `Fn(&T) -> K`.
    pub key: KF,
    /// Creates the state of a new key: `Fn() -> S`.
    pub create: C,
    /// Handles a record: `Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<U>)`.
    pub on_record: R,
    /// Handles a timer: `Fn(&mut S, &K, Timestamp, &mut KeyedContext<U>)`. The `Timestamp` is the
    /// time that the timer was set for; a wall-clock time for processing timers.
    pub on_timer: X,
}

/// Returns the logic of a stateful map: one output `f(state, key, record)` per record.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{StatefulMapP, map_stateful};
///
/// let running_sum = map_stateful(
///     |record: &(char, u64)| record.0,
///     || 0u64,
///     |sum: &mut u64, key: &char, (_, n): (char, u64)| {
///         *sum += n;
///         (*key, *sum)
///     },
/// );
/// let mut inbox = Inbox::default();
/// let records = [('a', 1u64), ('b', 5), ('a', 2)].map(|record| (record, Timestamp::MIN));
/// inbox.fill(Chunk::new(Rows::from_iter(records)));
/// let mut outbox = Outbox::new(1, 16);
/// StatefulMapP::new(Arc::new(running_sum)).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<(char, u64)>(Ordinal::FIRST)?.rows().values(), [('a', 1), ('b', 5), ('a', 3)]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[expect(
    clippy::type_complexity,
    reason = "an opaque type can't be given a name"
)]
pub fn map_stateful<T, K, S, U, KF, C, F>(
    key: KF,
    create: C,
    f: F,
) -> KeyedLogic<
    KF,
    C,
    impl Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync,
    impl Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync,
>
where
    KF: Fn(&T) -> K,
    C: Fn() -> S,
    F: Fn(&mut S, &K, T) -> U + Send + Sync,
{
    KeyedLogic {
        key,
        create,
        on_record: move |state: &mut S,
                         key: &K,
                         record: T,
                         _: Timestamp,
                         out: &mut KeyedContext<'_, '_, U>| {
            out.emit(f(state, key, record));
        },
        on_timer: |_: &mut S, _: &K, _: Timestamp, _: &mut KeyedContext<'_, '_, U>| {},
    }
}

/// Returns the logic of a stateful flat map: each item of `f(state, key, record)` per record.
///
/// Items are drawn at once and buffered if there is no room. See [`map_stateful`] for an example.
#[expect(
    clippy::type_complexity,
    reason = "an opaque type can't be given a name"
)]
pub fn flat_map_stateful<T, K, S, I, KF, C, F>(
    key: KF,
    create: C,
    f: F,
) -> KeyedLogic<
    KF,
    C,
    impl Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, I::Item>) + Send + Sync,
    impl Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, I::Item>) + Send + Sync,
>
where
    KF: Fn(&T) -> K,
    C: Fn() -> S,
    I: IntoIterator,
    F: Fn(&mut S, &K, T) -> I + Send + Sync,
{
    KeyedLogic {
        key,
        create,
        on_record: move |state: &mut S,
                         key: &K,
                         record: T,
                         _: Timestamp,
                         out: &mut KeyedContext<'_, '_, I::Item>| {
            f(state, key, record)
                .into_iter()
                .for_each(|item| out.emit(item));
        },
        on_timer: |_: &mut S, _: &K, _: Timestamp, _: &mut KeyedContext<'_, '_, I::Item>| {},
    }
}
