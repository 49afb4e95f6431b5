//! The job under test: two endless inputs, a table, joins, windows, timers, running totals, and
//! sinks of both kinds.
//!
//! ```text
//! orders (file)     ─┬─ pairs     in the same second, of a key        ─▶ files, exactly once
//! payments (Kafka)  ─┼─ near      a payment at most 300 ms after      ─▶ files, exactly once
//! regions (table)   ─┼─ rates     of orders by region, sliding        ─▶ Kafka, exactly once
//!                    ├─ silences  keys without payments, by timers    ─▶ PostgreSQL, exactly once
//!                    └─ balances  running, of both                    ─▶ PostgreSQL, idempotent
//! ```
//!
//! Sources have no idle timeout: a source that is silent because of a fault holds back the
//! watermark, so no record is late.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ardea::prelude::*;
use ardea::{kafka, postgres};

use crate::inputs::Event;

/// The name of the job, and its first argument.
pub const JOB: &str = "torture";

/// The topics of the payments, which is read, and of the rates, which is written.
pub const PAYMENTS: &str = "payments";
pub const RATES: &str = "rates";

/// The statements that create the output tables.
pub const TABLES: &str = "create table silences (line text); \
    create table balances (key text primary key, line text)";

/// The length of the windows that pair orders and payments.
pub const PAIRED_MILLIS: i64 = 1_000;
/// The maximum delay of a payment after its order to be near.
pub const NEAR_MILLIS: i64 = 300;
/// The length and the slide of the windows that count orders.
pub const RATED_MILLIS: i64 = 2_000;
pub const RATED_EVERY_MILLIS: i64 = 500;
/// The time without payments after which a key is reported as silent.
pub const SILENT_MILLIS: i64 = 1_500;

/// Returns true if this process is to be the job, and not its tests.
pub fn is_asked_for() -> bool {
    let is_told = |name| std::env::var_os(name).is_some();
    is_told("ARDEA_WORKER")
        || is_told("ARDEA_HOST")
        || matches!(
            std::env::args().nth(1).as_deref(),
            Some("submit" | "upgrade")
        )
}

type Events = Stream<Event, Unbounded, Timed>;

fn millis(count: i64) -> Duration {
    Duration::from_millis(count.unsigned_abs())
}

fn two() -> Parallelism {
    Parallelism::Exactly(NonZeroU32::MIN.saturating_add(1))
}

/// Builds the job `torture FOLDER BROKERS POSTGRES`: the folder of its files, the Kafka brokers,
/// and the database.
pub fn build(arguments: &[String]) -> Result<Pipeline> {
    let [_, folder, brokers, database] = arguments else {
        let what = "torture FOLDER BROKERS POSTGRES";
        return Err(Error::new(ErrorCode::InvalidConfig, what));
    };
    let folder = PathBuf::from(folder);
    let p = Pipeline::new(JOB);
    let lines = files::lines(folder.join("orders.csv")).follow().build();
    let orders = timed(p.read_from(lines));
    let lines = kafka::read(brokers, PAYMENTS)
        .idle_after(None)
        .text()
        .build();
    let payments = timed(p.read_from(lines));
    let table = files::lines(folder.join("regions.csv")).build();
    let table = p
        .read_from(table)
        .try_map(|line: &String| row(line), OnError::Fail);

    let (orders, others) = orders.tee();
    let (near_orders, others) = others.tee();
    let (rated, counted) = others.tee();
    let (payments, others) = payments.tee();
    let (near_payments, others) = others.tee();
    let (silent, also_counted) = others.tee();
    pairs(orders, payments).write_to(lines_in(&folder, "pairs.txt"));
    near(near_orders, near_payments).write_to(lines_in(&folder, "near.txt"));
    rates(rated, table).write_to(kafka::write(brokers, RATES, |line: &String, out| {
        out.value(line);
        Ok(())
    }));
    let table = postgres::write(database, "silences", ["line"], |line: &String, row| {
        row.set(line);
    });
    silences(silent).write_to(table.exactly_once().on_error(OnError::Fail));
    let columns = ["key", "line"];
    let table = postgres::write(database, "balances", columns, |balance: &Balance, row| {
        row.set(&balance.0).set(&balance.1);
    });
    balances(counted, also_counted).write_to(table.upsert(["key"]).on_error(OnError::Fail));
    Ok(p)
}

/// Creates a sink of files that become visible when their epoch is committed.
fn lines_in(folder: &Path, name: &str) -> Sink<String> {
    files::write_lines(folder.join("out").join(name))
        .rotate_with_epochs()
        .parallelism(two())
        .build()
}

fn row(line: &str) -> Result<(u32, String), String> {
    let (key, region) = line.split_once(',').ok_or("there is no comma")?;
    let key = key.parse().map_err(|_| format!("{key:?} is no key"))?;
    Ok((key, region.to_string()))
}

/// Parses lines into timed events. The event that ends an input only advances the watermark.
fn timed(lines: Stream<String, Unbounded, Untimed>) -> Events {
    lines
        .try_map(|line: &String| Event::parse(line), OnError::Fail)
        .with_timestamps(
            |event: &Event| Timestamp::from_millis(event.millis),
            WatermarkPolicy::in_order().idle_timeout(None),
        )
        .filter(|event| !event.is_end())
}

fn pairs(orders: Events, payments: Events) -> Stream<String, Unbounded, Timed> {
    orders
        .key_by(|event| event.key)
        .window(Window::tumbling(millis(PAIRED_MILLIS)))
        .co_group(
            "pairs",
            payments.key_by(|event| event.key),
            collect_list(),
            collect_list(),
        )
        .parallelism(two())
        .flat_map(|window| {
            let (orders, payments): (Vec<Event>, Vec<Event>) = window.value;
            let start = window.start.as_millis();
            let mut lines = Vec::with_capacity(orders.len() * payments.len());
            for order in &orders {
                let of_order = payments.iter().map(|payment| {
                    let (order, payment) = (order.number, payment.number);
                    format!("pair {start} {order} {payment}")
                });
                lines.extend(of_order);
            }
            lines
        })
}

fn near(orders: Events, payments: Events) -> Stream<String, Unbounded, Timed> {
    orders
        .key_by(|event| event.key)
        .interval_join(
            "near",
            payments.key_by(|event| event.key),
            JoinInterval::between(Duration::ZERO, millis(NEAR_MILLIS)),
            |order, payment| format!("near {} {}", order.number, payment.number),
        )
        .parallelism(two())
}

fn rates(
    orders: Events,
    regions: Stream<(u32, String), Bounded, Untimed>,
) -> Stream<String, Unbounded, Timed> {
    orders
        .hash_join(
            "regions",
            regions,
            |event| event.key,
            |row| row.0,
            |event, row| (row.1.clone(), event.amount),
        )
        .key_by(|(region, _)| region.clone())
        .window(Window::sliding(
            millis(RATED_MILLIS),
            millis(RATED_EVERY_MILLIS),
        ))
        .aggregate(
            "rates",
            (count(), sum(|(_, amount): &(String, i64)| *amount)),
        )
        .parallelism(two())
        .map(|window| {
            let (count, sum) = window.value;
            let end = window.end.as_millis();
            format!("rate {} {end} {count} {sum}", window.key)
        })
}

fn silences(payments: Events) -> Stream<String, Unbounded, Timed> {
    let silence = millis(SILENT_MILLIS);
    payments
        .key_by(|event| event.key)
        .process(
            "silences",
            || Timestamp::MIN,
            move |last, _, _, time, context| {
                // The previous timer is cleared, unless its silence has already passed.
                if time < *last + silence {
                    context.clear_event_timer(*last + silence);
                }
                context.set_event_timer(time + silence);
                *last = time;
            },
            |_, key, time, context| context.emit(format!("silent {key} {}", time.as_millis())),
        )
        .parallelism(two())
}

/// A key, and its balance as a line.
type Balance = (String, String);

fn balances(orders: Events, payments: Events) -> Stream<Balance, Unbounded, Timed> {
    orders
        .merge(payments)
        .key_by(|event| event.key)
        .rolling("balances", (count(), sum(|event: &Event| event.amount)))
        .parallelism(two())
        .map(|(key, (count, sum))| (key.to_string(), format!("balance {key} {count} {sum}")))
}
