//! The list of queries.

use std::str::FromStr;

use ardea_core::{Error, ErrorCode};

/// A query of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Query {
    /// All bids, unchanged.
    Q0,
    /// The prices in another currency.
    Q1,
    /// The bids on certain auctions.
    Q2,
    /// Local sellers and their auctions.
    Q3,
    /// Average winning price by category.
    Q4,
    /// Hot auctions.
    Q5,
    /// Average winning price by seller.
    Q6,
    /// Highest bid.
    Q7,
    /// New sellers.
    Q8,
    /// Join with a table.
    Q13,
}

impl Query {
    /// Every query.
    pub const ALL: [Query; 10] = [
        Query::Q0,
        Query::Q1,
        Query::Q2,
        Query::Q3,
        Query::Q4,
        Query::Q5,
        Query::Q6,
        Query::Q7,
        Query::Q8,
        Query::Q13,
    ];

    /// Returns the usual name of the query.
    pub const fn name(self) -> &'static str {
        match self {
            Query::Q0 => "q0",
            Query::Q1 => "q1",
            Query::Q2 => "q2",
            Query::Q3 => "q3",
            Query::Q4 => "q4",
            Query::Q5 => "q5",
            Query::Q6 => "q6",
            Query::Q7 => "q7",
            Query::Q8 => "q8",
            Query::Q13 => "q13",
        }
    }
}

impl FromStr for Query {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Query::ALL
            .into_iter()
            .find(|query| query.name() == name)
            .ok_or_else(|| {
                let known: Vec<&str> = Query::ALL.iter().map(|query| query.name()).collect();
                Error::new(ErrorCode::InvalidConfig, format!("unknown query {name:?}"))
                    .hint(format!("one of {}", known.join(", ")))
            })
    }
}
