//! The records of a batch, merged to parts of sessions.

use ardea_core::{Rows, Timestamp};
use ardea_operators::{KeyIndex, SessionSpec};
use arrow_array::ArrayRef;

use super::SessionPart;
use crate::key::{EncodedKeys, GroupKey};
use crate::window::accumulator::add_values;
use crate::window::{Accumulator, AccumulatorRow, BoundAggregate};

/// Merges the records of a batch that belong to one session. No record may be late.
pub(super) struct SessionMerge {
    spec: SessionSpec,
    aggregates: Vec<BoundAggregate>,
    // All the following are empty between calls.
    keys: KeyIndex<GroupKey>,
    /// The group of each record.
    groups: Vec<u32>,
    /// The last part of each group; `u32::MAX` before its first.
    last_parts: Vec<u32>,
    parts: Vec<PartSpan>,
    /// The part of each record.
    part_of: Vec<u32>,
    /// Further times of parts: without them the record of a part would not reach its bounds.
    links: Vec<(u32, Timestamp)>,
}

/// The bounds of a part.
struct PartSpan {
    group: u32,
    /// The time of the part's first record in the batch.
    first: Timestamp,
    /// The least time.
    start: Timestamp,
    /// The greatest time.
    last: Timestamp,
    /// The greatest time of the part that is the first time or a link.
    linked: Timestamp,
}

impl SessionMerge {
    pub(super) fn new(spec: SessionSpec, aggregates: Vec<BoundAggregate>) -> Self {
        SessionMerge {
            spec,
            aggregates,
            keys: KeyIndex::default(),
            groups: Vec::new(),
            last_parts: Vec::new(),
            parts: Vec::new(),
            part_of: Vec::new(),
            links: Vec::new(),
        }
    }

    pub(super) fn aggregates(&self) -> &[BoundAggregate] {
        &self.aggregates
    }

    /// Returns the parts of a batch. A part may be followed by others without accumulators that
    /// extend it.
    pub(super) fn merge(
        &mut self,
        times: &[Timestamp],
        keys: &EncodedKeys,
        arguments: &[ArrayRef],
    ) -> Rows<SessionPart> {
        let index = &mut self.keys;
        keys.group(0..keys.len(), &mut self.groups, |key| {
            index.find_or_insert(key).0
        });
        self.last_parts.resize(self.keys.slots(), u32::MAX);
        self.divide(times);
        let rows = self.rows(arguments);
        self.keys.clear();
        self.groups.clear();
        self.last_parts.clear();
        self.parts.clear();
        self.part_of.clear();
        self.links.clear();
        rows
    }

    /// Assigns each record to a part.
    fn divide(&mut self, times: &[Timestamp]) {
        for (group, time) in self.groups.iter().zip(times) {
            let last_part = &mut self.last_parts[*group as usize];
            let part = self.parts.get_mut(*last_part as usize);
            let reaches = |part: &PartSpan| {
                *time < self.spec.reach(part.last) && part.start < self.spec.reach(*time)
            };
            let Some(part) = part.filter(|part| reaches(part)) else {
                *last_part = self.parts.len() as u32;
                self.part_of.push(*last_part);
                self.parts.push(PartSpan {
                    group: *group,
                    first: *time,
                    start: *time,
                    last: *time,
                    linked: *time,
                });
                continue;
            };
            self.part_of.push(*last_part);
            if *time < part.start {
                self.links.push((*last_part, *time));
                part.start = *time;
            } else if *time > part.last {
                if *time >= self.spec.reach(part.linked) {
                    self.links.push((*last_part, part.last));
                    part.linked = part.last;
                }
                part.last = *time;
            }
        }
    }

    /// Returns the parts with their accumulators.
    fn rows(&self, arguments: &[ArrayRef]) -> Rows<SessionPart> {
        let mut arguments = arguments.iter();
        let columns = self.aggregates.iter().map(|aggregate| {
            let mut accumulators: Vec<Accumulator> = Vec::new();
            accumulators.resize_with(self.parts.len(), || aggregate.create());
            let values = aggregate.argument().and_then(|_| arguments.next());
            add_values(&mut accumulators, &self.part_of, values);
            accumulators.into_iter()
        });
        let mut columns: Vec<_> = columns.collect();
        let part = |part: &PartSpan, accumulators| SessionPart {
            key: self.keys.key(part.group).clone(),
            accumulators,
            row: 0,
        };
        let mut rows = Rows::with_capacity(self.parts.len());
        for span in &self.parts {
            let accumulators = columns.iter_mut().filter_map(Iterator::next).collect();
            rows.push(part(span, Some(AccumulatorRow(accumulators))), span.first);
        }
        for (index, time) in &self.links {
            rows.push(part(&self.parts[*index as usize], None), *time);
        }
        for span in self.parts.iter().filter(|it| it.last > it.linked) {
            rows.push(part(span, None), span.last);
        }
        rows
    }
}
