//! Steps with several output streams: copies, side outputs, and bad records.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use ardea_core::{Boundedness, OnError, Ordinal, ProcessorSupplier, supplier};
use ardea_operators::{Either, PartitionMapP, SplitP, TeeMapP, TeeP, TryMapP, raw_of};

use crate::step::{Lower, Port};
use crate::stream::Stream;

/// A stream of shared records.
type Shared<T, B, E> = Stream<Arc<T>, B, E>;

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Copies the stream. Costs a clone of each record.
    ///
    /// For large records, cheaper steps are [`tee_map`](Self::tee_map), if the second stream needs
    /// only a part of each record, and [`tee_shared`](Self::tee_shared). For more than two streams,
    /// use [`tee_n`](Self::tee_n).
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("twice");
    /// let (a, b) = p.read_from(items(vec![1, 2, 3])).tee();
    /// let (all, even) = (a.collect(), b.filter(|n| n % 2 == 0).collect());
    /// p.run().unwrap();
    /// assert_eq!((all.take(), even.take()), (vec![1, 2, 3], vec![2]));
    /// ```
    pub fn tee(self) -> (Stream<T, B, E>, Stream<T, B, E>)
    where
        T: Clone,
    {
        let first = self.split_step("tee", 2, supplier(TeeP::<T>::new));
        let second = first.sibling(1);
        (first, second)
    }

    /// Copies the stream to `N` streams in a single step. Costs `N - 1` clones of each record.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("thrice");
    /// let [a, b, c] = p.read_from(items(vec![1, 2])).tee_n();
    /// let all = [a, b, c].map(|stream| stream.collect());
    /// p.run().unwrap();
    /// assert_eq!(all.map(|out| out.take()), [[1, 2], [1, 2], [1, 2]]);
    /// ```
    pub fn tee_n<const N: usize>(self) -> [Stream<T, B, E>; N]
    where
        T: Clone,
    {
        const { assert!(N > 0, "a stream cannot become none") };
        let first: Stream<T, B, E> = self.split_step("tee", N, supplier(TeeP::<T>::new));
        std::array::from_fn(|output| first.sibling(output))
    }

    /// Adds a second stream with the result of `f(&record)` for each record. No record is cloned.
    ///
    /// If the second stream needs only a few fields, as windows and joins do, `f` copies only
    /// those.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("lengths");
    /// let lines = p.read_from(items(vec!["a".to_string(), "bcd".to_string()]));
    /// let (lines, lengths) = lines.tee_map(|line| line.len());
    /// let (lines, lengths) = (lines.collect(), lengths.collect());
    /// p.run().unwrap();
    /// assert_eq!((lines.take(), lengths.take()), (vec!["a".to_string(), "bcd".to_string()], vec![1, 3]));
    /// ```
    pub fn tee_map<U, F>(self, f: F) -> (Stream<T, B, E>, Stream<U, B, E>)
    where
        U: Send + 'static,
        F: Fn(&T) -> U + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        let make = move || TeeMapP::new(Arc::clone(&f));
        let first = self.split_step("tee-map", 2, supplier(make));
        let second = first.sibling(1);
        (first, second)
    }

    /// Copies the stream, with each record shared in an `Arc`. Costs an allocation per record
    /// instead of a clone.
    ///
    /// On a cluster, a record sent to another process is serialized, and is not shared there.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("shared");
    /// let (a, b) = p.read_from(items(vec!["a".to_string(), "bcd".to_string()])).tee_shared();
    /// let (all, lengths) = (a.collect(), b.map(|line| line.len()).collect());
    /// p.run().unwrap();
    /// assert_eq!((all.take().len(), lengths.take()), (2, vec![1, 3]));
    /// ```
    pub fn tee_shared(self) -> (Shared<T, B, E>, Shared<T, B, E>)
    where
        T: Sync,
    {
        self.map(Arc::new).tee()
    }

    /// Splits the stream in two: the records for which `first` returns true, and the others.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("parted");
    /// let (even, odd) = p.read_from(items(vec![1, 2, 3])).split(|n| n % 2 == 0);
    /// let (even, odd) = (even.collect(), odd.collect());
    /// p.run().unwrap();
    /// assert_eq!((even.take(), odd.take()), (vec![2], vec![1, 3]));
    /// ```
    pub fn split<F>(self, first: F) -> (Stream<T, B, E>, Stream<T, B, E>)
    where
        F: Fn(&T) -> bool + Send + Sync + 'static,
    {
        let route = Arc::new(move |record: &T| usize::from(!first(record)));
        let first = self.split_step(
            "split",
            2,
            supplier(move || SplitP::new(Arc::clone(&route))),
        );
        let second = first.sibling(1);
        (first, second)
    }

    /// Applies `f` to each record and sends the result to one of two streams of different types.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::{Either, Pipeline};
    ///
    /// let p = Pipeline::new("numbers");
    /// let (numbers, others) = p
    ///     .read_from(items(vec!["1", "x", "3"]))
    ///     .partition_map(|text| text.parse::<u32>().map_or(Either::Right(text), Either::Left));
    /// let (numbers, others) = (numbers.collect(), others.collect());
    /// p.run().unwrap();
    /// assert_eq!((numbers.take(), others.take()), (vec![1, 3], vec!["x"]));
    /// ```
    pub fn partition_map<A, C, F>(self, f: F) -> (Stream<A, B, E>, Stream<C, B, E>)
    where
        A: Send + 'static,
        C: Send + 'static,
        F: Fn(T) -> Either<A, C> + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        let first = self.split_step(
            "partition-map",
            2,
            supplier(move || PartitionMapP::new(Arc::clone(&f))),
        );
        let second = first.sibling(1);
        (first, second)
    }

    /// Applies a function `f` that may fail on a record. `on_error` is the policy for records on
    /// which `f` fails; the job continues unless the policy is to fail. A panic of `f` counts as an
    /// error of the record.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_core::OnError;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("numbers");
    /// let out = p.read_from(items(vec!["1", "x", "3"])).try_map(|s| s.parse::<u32>(), OnError::Drop).collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [1, 3]);
    /// ```
    pub fn try_map<U, R, F>(self, f: F, on_error: OnError) -> Stream<U, B, E>
    where
        T: Debug,
        U: Send + 'static,
        R: Display + 'static,
        F: Fn(&T) -> Result<U, R> + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.follow("try-map", move || {
            TryMapP::new(Arc::clone(&f), on_error, raw_of::<T>)
        })
    }

    /// Adds a step on single records with several outputs. Returns the stream of the first output.
    fn split_step<U>(
        self,
        kind: &str,
        outputs: usize,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E> {
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let first = lowering.follow::<T>(name, inputs[0], Arc::clone(&make));
            Ok((0..outputs)
                .map(|output| Port {
                    ordinal: Ordinal(output as u16),
                    ..first
                })
                .collect())
        });
        let name = self.pipeline.fresh_name(kind);
        let first: Stream<U, B, E> = self.pipeline.add(name, vec![self.from], outputs, lower);
        first.repeatable()
    }
}
