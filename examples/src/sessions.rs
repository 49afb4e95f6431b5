//! Visits to a web site, from the log of its server: requests of a host without a longer gap
//! between them.

use ardea::core::Boundedness;
use ardea::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arguments::{Arguments, lines_of};

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Request {
    /// The host of the client.
    pub host: String,
    /// The time of the request.
    pub time: Timestamp,
    /// The requested path.
    pub path: String,
    /// The number of bytes sent.
    pub bytes: u64,
}

/// The requests of a host without a longer gap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Visit {
    /// The second of the first request, since 1970.
    pub start: i64,
    /// The host of the client.
    pub host: String,
    /// The seconds from the first request to the last.
    pub seconds: u64,
    /// The number of requests.
    pub requests: u64,
    /// The number of bytes sent.
    pub bytes: i128,
    /// The first requested path.
    pub entry: Option<String>,
}

/// Returns the visits, each when the watermark shows that it is complete.
pub fn visits<B: Boundedness>(
    requests: Stream<Request, B, Timed>,
    gap: Duration,
) -> Stream<Visit, B, Timed> {
    let first = min_by_key(|request: &Request| (request.time, request.path.clone()));
    requests
        .key_by(|request| request.host.clone())
        .window(Window::session(gap))
        .aggregate(
            "visits",
            (count(), sum(|request: &Request| request.bytes), first),
        )
        .map(move |session| Visit {
            start: session.start.as_millis() / 1000,
            seconds: (session.end - gap).since(session.start).as_secs(),
            host: session.key,
            requests: session.value.0,
            bytes: session.value.1,
            entry: session.value.2.map(|request| request.path),
        })
}

/// Parses `host ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.0" 200 2326`; the rest of
/// the line is ignored.
fn parse(line: &str) -> std::result::Result<Request, &'static str> {
    let (who, rest) = line.split_once(" [").ok_or("no [ before the time")?;
    let (time, rest) = rest
        .split_once("] \"")
        .ok_or("no ] and request behind the time")?;
    let (request, rest) = rest.split_once("\" ").ok_or("the request has no end")?;
    let time = jiff::Timestamp::strptime("%d/%b/%Y:%H:%M:%S %z", time);
    let time = time.map_err(|_| "the text in [] is not a time")?;
    Ok(Request {
        host: who.split(' ').next().unwrap_or_default().to_string(),
        time: Timestamp::from_micros(time.as_microsecond()),
        path: request.split(' ').nth(1).unwrap_or_default().to_string(),
        bytes: rest
            .split(' ')
            .nth(1)
            .and_then(|bytes| bytes.parse().ok())
            .unwrap_or(0),
    })
}

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("sessions", args);
    let gap = args.duration("--gap", Duration::from_secs(30 * 60))?;
    let out_of_order = args.duration("--out-of-order", Duration::from_secs(10))?;
    let file = args.file()?;
    args.finish()?;
    let p = Pipeline::new("sessions");
    let requests = p
        .read_from(lines_of(&file))
        .try_map(|line| parse(line), OnError::DeadLetter)
        .with_timestamps(
            |request| request.time,
            WatermarkPolicy::out_of_order(out_of_order),
        );
    visits(requests, gap).write_to(stdout::json_lines().build());
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"
h1 - - [10/Oct/2000:13:55:36 -0700] "GET /in HTTP/1.0" 200 100
h2 - ann [10/Oct/2000:13:56:00 -0700] "GET /other HTTP/1.0" 304 - "-" "Mozilla/5.0"
h1 - - [10/Oct/2000:13:57:36 -0700] "GET /next HTTP/1.0" 200 23
h1 - - [10/Oct/2000:21:58:00 +0000] "GET /later HTTP/1.0" 200 1"#;

    #[test]
    fn a_pause_longer_than_the_gap_ends_a_visit() {
        let requests: Vec<Request> = LOG
            .trim()
            .lines()
            .map(|line| parse(line).unwrap())
            .collect();
        let p = Pipeline::new("sessions");
        let timed = p
            .read_from(collections::items(requests))
            .with_timestamps(|request| request.time, WatermarkPolicy::in_order());
        let visits = visits(timed, Duration::from_secs(1800)).collect();
        p.run().unwrap();
        let visit = |start, host: &str, seconds, requests, bytes, entry: &str| {
            let (host, entry) = (host.to_string(), Some(entry.to_string()));
            Visit {
                start,
                host,
                seconds,
                requests,
                bytes,
                entry,
            }
        };
        let expected = [
            visit(971_211_336, "h1", 120, 2, 123, "/in"),
            visit(971_211_360, "h2", 0, 1, 0, "/other"),
            visit(971_215_080, "h1", 0, 1, 1, "/later"),
        ];
        assert_eq!(visits.take_sorted(), expected);
    }

    #[test]
    fn lines_that_are_no_requests_say_why() {
        assert_eq!(parse("hello"), Err("no [ before the time"));
        assert_eq!(
            parse("h - - [yesterday] \"GET / HTTP/1.0\" 200 1"),
            Err("the text in [] is not a time")
        );
    }
}
