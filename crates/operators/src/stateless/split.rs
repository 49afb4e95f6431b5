//! Routing of each record to one of several outputs.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Rows};

/// Sends each record to the output with the index `route(record)`, from zero.
///
/// There are as many outputs as the vertex has edges. A record whose output is full blocks those
/// behind it, so that each output receives its records in order. Cost: a second move per record, in
/// bulk.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::SplitP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new((0..6u32).map(|n| (n, Timestamp::MIN)).collect::<Rows<_>>()));
/// let mut outbox = Outbox::new(2, 16);
///
/// let mut split = SplitP::new(Arc::new(|n: &u32| (n % 2) as usize));
/// split.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [0, 2, 4]);
/// assert_eq!(outbox.lane::<u32>(Ordinal::SECOND)?.rows().values(), [1, 3, 5]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SplitP<T, F> {
    route: Arc<F>,
    /// Per output: its remaining room, and its records of this call.
    outputs: Vec<(usize, Rows<T>)>,
    /// The outputs of the records that fit in this call.
    routes: Vec<usize>,
    /// The output of the first waiting record, if `route` was already called for it.
    next: Option<usize>,
    records: PhantomData<fn(T)>,
}

impl<T, F> SplitP<T, F>
where
    F: Fn(&T) -> usize,
{
    /// Creates an operator that routes by `route`, which instances share.
    pub fn new(route: Arc<F>) -> Self {
        SplitP {
            route,
            outputs: Vec::new(),
            routes: Vec::new(),
            next: None,
            records: PhantomData,
        }
    }
}

impl<T, F> SplitP<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> usize,
{
    /// Calls `route` for the waiting records up to the first one whose output has no room. That
    /// output is stored in `next`.
    fn plan(&mut self, records: &[T]) -> Result<()> {
        self.routes.clear();
        let mut guard = RecordGuard::new();
        for record in records {
            let output = self.next.take().unwrap_or_else(|| (self.route)(record));
            guard.advance();
            let lanes = self.outputs.len();
            match self.outputs.get_mut(output) {
                None => return Err(no_such_output(output, lanes)),
                Some((0, _)) => {
                    self.next = Some(output);
                    break;
                }
                Some((room, _)) => *room -= 1,
            }
            self.routes.push(output);
        }
        Ok(())
    }
}

fn no_such_output(output: usize, lanes: usize) -> Error {
    Error::new(
        ErrorCode::NoSuchOutput,
        format!("a record was routed to output {output} of {lanes}"),
    )
    .hint("let the routing function return the index of an output, and connect every output")
}

impl<T, F> Processor for SplitP<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> usize + Send + Sync + 'static,
{
    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let lanes = outbox.lanes();
        self.outputs.resize_with(lanes, || (0, Rows::default()));
        for (index, (room, _)) in self.outputs.iter_mut().enumerate() {
            *room = outbox.lane::<T>(Ordinal(index as u16))?.room();
        }
        let position = inbox.position();
        let records = inbox.rows::<T>()?;
        self.plan(records.values())
            .map_err(|error| error.at_record(input.index(), position + self.routes.len() as u64))?;
        let placed = records.drain_front(self.routes.len());
        for ((record, time), output) in placed.zip(&self.routes) {
            self.outputs[*output].1.push(record, time);
        }
        for (index, (_, staged)) in self.outputs.iter_mut().enumerate() {
            let count = staged.len();
            outbox
                .lane::<T>(Ordinal(index as u16))?
                .rows()
                .append_front(staged, count);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at, untimed};

    #[test]
    fn each_output_gets_its_records_in_order() {
        Drive::every_schedule(|drive| {
            let mut split = SplitP::new(Arc::new(|n: &i64| (n % 3) as usize));
            let seen = drive
                .lanes(3)
                .records((0..60).map(|n| (n, at(n))))
                .run_lanes::<i64>(&mut split);
            for (output, seen) in seen.iter().enumerate() {
                let expected: Vec<_> = (0..60)
                    .filter(|n| n % 3 == output as i64)
                    .map(|n| (n, at(n)))
                    .collect();
                assert_eq!(seen.records(), expected);
            }
        });
    }

    #[test]
    fn a_route_to_nowhere_names_the_record() {
        let mut split = SplitP::new(Arc::new(|n: &usize| *n));
        let error = Drive::default()
            .lanes(2)
            .records(untimed([0usize, 1, 2, 0]))
            .try_run::<usize>(&mut split)
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoSuchOutput);
        assert_eq!(error.record(), Some((0, 2)));
    }
}
