//! Streams that part: copies, side outputs, and records that user code fails on.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use ardea_core::{Boundedness, OnError, Ordinal, ProcessorSupplier, supplier};
use ardea_operators::{Either, PartitionMapP, SplitP, TeeP, TryMapP, raw_of};

use crate::step::{Lower, Port};
use crate::stream::Stream;

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Two streams with the same records.
    ///
    /// ```
    /// use ardea_connect::collections::items;
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
        let first = self.parting("tee", 2, supplier(TeeP::<T>::new));
        let second = first.sibling(1);
        (first, second)
    }

    /// Parts the stream: records for which `first` is true, and the others.
    ///
    /// ```
    /// use ardea_connect::collections::items;
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
        let first = self.parting(
            "split",
            2,
            supplier(move || SplitP::new(Arc::clone(&route))),
        );
        let second = first.sibling(1);
        (first, second)
    }

    /// Applies `f` to each record and sends the result one way or the other, under different types.
    pub fn partition_map<A, C, F>(self, f: F) -> (Stream<A, B, E>, Stream<C, B, E>)
    where
        A: Send + 'static,
        C: Send + 'static,
        F: Fn(T) -> Either<A, C> + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        let first = self.parting(
            "partition-map",
            2,
            supplier(move || PartitionMapP::new(Arc::clone(&f))),
        );
        let second = first.sibling(1);
        (first, second)
    }

    /// Applies `f`, which may fail on a record; `on_error` says what becomes of that record. The job goes on unless it says otherwise.
    ///
    /// ```
    /// use ardea_connect::collections::items;
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

    /// A step on single records with several outputs; the stream returned is the first.
    fn parting<U>(
        self,
        kind: &str,
        outputs: usize,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E> {
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let first = lowering.follow(name, inputs[0], Arc::clone(&make));
            Ok((0..outputs)
                .map(|output| Port {
                    ordinal: Ordinal(output as u16),
                    ..first
                })
                .collect())
        });
        let name = self.pipeline.fresh_name(kind);
        self.pipeline.add(name, vec![self.from], outputs, lower)
    }
}
