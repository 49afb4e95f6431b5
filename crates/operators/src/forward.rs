//! Functions that forward records: whole chunks to an empty lane, otherwise as many as fit.
//!
//! A whole chunk is forwarded at constant cost. The emptied chunk of the lane is returned to the
//! producer, so the steady state allocates nothing.

use std::ops::ControlFlow;

use ardea_core::{Chunk, Inbox, Ordinal, Outbox, RecordGuard, Result, Rows, Timestamp};

/// Returns the number of waiting records that [`pass_front`] would move now: all if the lane is
/// empty, otherwise as many as the lane has room for.
pub(crate) fn passable<T: Send + 'static>(
    inbox: &Inbox,
    outbox: &mut Outbox,
    ordinal: Ordinal,
) -> Result<usize> {
    let mut lane = outbox.lane::<T>(ordinal)?;
    if lane.is_full() {
        Ok(0)
    } else if lane.rows().is_empty() {
        Ok(inbox.len())
    } else {
        Ok(inbox.len().min(lane.room()))
    }
}

/// Moves `count` records from the front of the inbox to a lane. `count` is the result of
/// [`passable`], less the records removed since.
///
/// A whole chunk is moved to an empty lane without a copy.
pub(crate) fn pass_front<T: Send + 'static>(
    inbox: &mut Inbox,
    outbox: &mut Outbox,
    ordinal: Ordinal,
    count: usize,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    if count == inbox.len() {
        let mut chunk = Chunk::default();
        inbox.swap(&mut chunk);
        let offered = outbox.offer_chunk(ordinal, &mut chunk);
        // The inbox receives either the lane's emptied chunk or the refused one.
        inbox.swap(&mut chunk);
        if offered? {
            return Ok(());
        }
    }
    let input = inbox.rows::<T>()?;
    outbox.lane::<T>(ordinal)?.rows().append_front(input, count);
    Ok(())
}

/// Forwards the records for which `keep` returns true and drops the others. `keep` is called once
/// per record, in place.
///
/// `asked` is state of the processor: the number of records accepted by `keep` that have not been
/// forwarded yet.
pub(crate) fn pass_if<T: Send + 'static>(
    inbox: &mut Inbox,
    outbox: &mut Outbox,
    asked: &mut usize,
    mut keep: impl FnMut(&T) -> bool,
) -> Result<()> {
    if *asked == 0 {
        let mut guard = RecordGuard::new();
        inbox.rows::<T>()?.retain(|record| {
            let stays = keep(record);
            guard.advance();
            stays
        });
        *asked = inbox.len();
    }
    let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
    pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)?;
    *asked -= count;
    Ok(())
}

/// Removes the waiting records at `indexes`, which ascend, and clears `indexes`. Returns the number
/// of removed records.
pub(crate) fn remove_at<T: Send + 'static>(
    inbox: &mut Inbox,
    indexes: &mut Vec<usize>,
) -> Result<usize> {
    let removed = indexes.len();
    if removed > 0 {
        let mut removing = indexes.drain(..).peekable();
        let mut index = 0;
        inbox.rows::<T>()?.retain(|_| {
            let stays = removing.next_if_eq(&index).is_none();
            index += 1;
            stays
        });
    }
    Ok(removed)
}

/// Removes records from the front and passes each to `deal` until `deal` returns `Break`. The
/// others remain.
///
/// Cost: one move per removed record, and one per remaining record.
pub(crate) fn take_until<T>(
    rows: &mut Rows<T>,
    mut deal: impl FnMut(T, Timestamp) -> ControlFlow<()>,
) {
    let mut guard = RecordGuard::new();
    rows.extend_columns(|values, times| {
        let mut taken = 0;
        for value in values.extract_if(.., |_| true) {
            let time = times[taken];
            taken += 1;
            if deal(value, time).is_break() {
                break;
            }
            guard.advance();
        }
        times.drain(..taken);
    });
}

/// Returns [`ControlFlow::Break`] if `stop` is true.
#[inline]
pub(crate) fn break_if(stop: bool) -> ControlFlow<()> {
    if stop {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::OutboxRuntime;

    fn rows(values: impl IntoIterator<Item = i64>) -> Rows<i64> {
        values
            .into_iter()
            .map(|value| (value, Timestamp::from_secs(value)))
            .collect()
    }

    #[test]
    fn what_is_not_taken_stays_in_order_with_its_times() {
        let mut batch = rows(0..6);
        let mut taken = Vec::new();
        take_until(&mut batch, |value, time| {
            taken.push((value, time));
            break_if(taken.len() == 2)
        });
        assert_eq!(
            taken,
            [(0, Timestamp::from_secs(0)), (1, Timestamp::from_secs(1))]
        );
        assert_eq!(batch, rows(2..6));
    }

    #[test]
    fn an_empty_lane_takes_the_chunk_itself_and_gives_its_own_back() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows(0..4)));
        let mut outbox = Outbox::new(1, 2);
        let count = passable::<i64>(&inbox, &mut outbox, Ordinal::FIRST).unwrap();
        pass_front::<i64>(&mut inbox, &mut outbox, Ordinal::FIRST, count).unwrap();
        assert!(inbox.is_empty());
        assert_eq!(
            outbox
                .take_chunk(0, Chunk::default)
                .map(|chunk| chunk.len()),
            Some(4)
        );
    }

    #[test]
    fn a_lane_in_use_takes_what_it_has_room_for() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows(0..4)));
        let mut outbox = Outbox::new(1, 3);
        outbox
            .lane::<i64>(Ordinal::FIRST)
            .unwrap()
            .push(9, Timestamp::MIN);
        let count = passable::<i64>(&inbox, &mut outbox, Ordinal::FIRST).unwrap();
        pass_front::<i64>(&mut inbox, &mut outbox, Ordinal::FIRST, count).unwrap();
        assert_eq!(*inbox.rows::<i64>().unwrap(), rows(2..4));
        assert_eq!(
            outbox
                .take_chunk(0, Chunk::default)
                .map(|chunk| chunk.len()),
            Some(3)
        );
    }

    #[test]
    fn records_without_room_are_not_asked_about_again() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows(0..8)));
        let mut outbox = Outbox::new(1, 2);
        let (mut asked, mut questions, mut passed) = (0, 0, Vec::new());
        outbox
            .lane::<i64>(Ordinal::FIRST)
            .unwrap()
            .push(9, Timestamp::MIN);
        while !inbox.is_empty() {
            let odd = |value: &i64| {
                questions += 1;
                value % 2 == 1
            };
            pass_if::<i64>(&mut inbox, &mut outbox, &mut asked, odd).unwrap();
            let mut chunk = outbox.take_chunk(0, Chunk::default).unwrap();
            passed.extend_from_slice(chunk.rows::<i64>().unwrap().values());
        }
        assert_eq!((passed, questions, asked), (vec![9, 1, 3, 5, 7], 8, 0));
    }

    #[test]
    fn records_are_removed_by_their_indexes() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows(0..6)));
        let mut indexes = vec![0, 3, 5];
        assert_eq!(remove_at::<i64>(&mut inbox, &mut indexes).unwrap(), 3);
        assert_eq!(*inbox.rows::<i64>().unwrap(), rows([1, 2, 4]));
        assert!(indexes.is_empty());
    }

    #[test]
    fn an_output_that_is_not_there_loses_no_record() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows(0..4)));
        assert!(pass_front::<i64>(&mut inbox, &mut Outbox::new(0, 4), Ordinal::FIRST, 4).is_err());
        assert_eq!(inbox.len(), 4);
    }
}
