//! Orders and their payments: paid orders, overdue orders, and the revenue per customer and hour.
//! With a processing guarantee the output is exactly-once in spite of failures.

use std::path::Path;

use ardea::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arguments::{Arguments, json_of};

const HOUR: Duration = Duration::from_secs(3_600);
/// The time after which a payment without an order is dropped.
const PAYMENT_TTL: Duration = Duration::from_secs(24 * 3_600);

/// An order.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Order {
    /// The number of the order, which is unique.
    pub order: u64,
    /// The customer.
    pub customer: String,
    /// The time of the order, in seconds since 1970.
    pub second: i64,
}

/// The payment of an order.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Payment {
    /// The number of the order.
    pub order: u64,
    /// The time of the payment, in seconds since 1970.
    pub second: i64,
    /// The amount.
    pub cents: u64,
}

/// An order paid in time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Paid {
    /// The number of the order.
    pub order: u64,
    /// The customer.
    pub customer: String,
    /// The seconds from order to payment.
    pub after: i64,
    /// The amount.
    pub cents: u64,
}

/// An order not paid in time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Overdue {
    /// The number of the order.
    pub order: u64,
    /// The customer.
    pub customer: String,
    /// The time from which the order is overdue, in seconds since 1970.
    pub since: i64,
}

/// The revenue from a customer in an hour.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Revenue {
    /// The customer.
    pub customer: String,
    /// The start of the hour, in seconds since 1970.
    pub hour: i64,
    /// The number of orders.
    pub orders: u64,
    /// The amount.
    pub cents: i64,
}

#[derive(Serialize, Deserialize, Debug)]
enum Event {
    Ordered(Order),
    Paid(Payment),
}

impl Event {
    fn order(&self) -> u64 {
        match self {
            Event::Ordered(order) => order.order,
            Event::Paid(payment) => payment.order,
        }
    }
}

/// The state of an order. Its payment may arrive first, since the two streams are not synchronized.
#[derive(Default, Serialize, Deserialize)]
struct OrderState {
    ordered: Option<Order>,
    paid: Option<Timestamp>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_secs(second)
}

/// Returns the orders paid in time.
pub fn paid(
    orders: Stream<Order, Bounded, Timed>,
    payments: Stream<Payment, Bounded, Timed>,
    within: Duration,
) -> Stream<Paid, Bounded, Timed> {
    orders.key_by(|order| order.order).interval_join(
        "paid",
        payments.key_by(|payment| payment.order),
        JoinInterval::between(Duration::ZERO, within),
        |order, payment| Paid {
            order: order.order,
            customer: order.customer.clone(),
            after: payment.second - order.second,
            cents: payment.cents,
        },
    )
}

/// Returns the orders not paid in time.
pub fn overdue(
    orders: Stream<Order, Bounded, Timed>,
    payments: Stream<Payment, Bounded, Timed>,
    within: Duration,
) -> Stream<Overdue, Bounded, Timed> {
    let events = orders
        .map(Event::Ordered)
        .merge(payments.map(Event::Paid))
        .key_by(Event::order);
    events.process_with_ttl(
        "overdue",
        PAYMENT_TTL + within,
        OrderState::default,
        move |waiting, _, event, time, context| {
            match event {
                Event::Ordered(order) => waiting.ordered = Some(order),
                Event::Paid(_) => {
                    waiting.paid = Some(waiting.paid.map_or(time, |paid| paid.min(time)))
                }
            }
            let Some(order) = &waiting.ordered else {
                return;
            };
            let deadline = at(order.second) + within;
            match waiting.paid {
                Some(paid) if paid <= deadline => context.clear_state(),
                _ => context.set_event_timer(deadline),
            }
        },
        |waiting, _, time, context| {
            if let Some(order) = waiting.ordered.take() {
                context.emit(Overdue {
                    order: order.order,
                    customer: order.customer,
                    since: time.as_millis() / 1_000,
                });
            }
            context.clear_state();
        },
    )
}

/// Returns the revenue of each customer in each hour.
pub fn revenue(paid: Stream<Paid, Bounded, Timed>) -> Stream<Revenue, Bounded, Timed> {
    paid.key_by(|paid| paid.customer.clone())
        .window(Window::tumbling(HOUR))
        .aggregate("revenue", (count(), sum(|paid: &Paid| paid.cents as i64)))
        .map(|window| Revenue {
            customer: window.key,
            hour: window.start.as_millis() / 1_000,
            orders: window.value.0,
            cents: i64::try_from(window.value.1).unwrap_or(i64::MAX),
        })
}

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("orders", args);
    let within = args.duration("--within", Duration::from_secs(900))?;
    let lag = args.duration("--out-of-order", Duration::from_secs(5))?;
    let [orders, payments, folder] = [args.file()?, args.file()?, args.file()?];
    args.finish()?;
    let p = Pipeline::new("orders");
    let policy = WatermarkPolicy::out_of_order(lag);
    let (orders, also_orders) = p
        .read_from(json_of::<Order>(&orders).named("orders"))
        .with_timestamps(|order| at(order.second), policy)
        .named("order times")
        .tee();
    let (payments, also_payments) = p
        .read_from(json_of::<Payment>(&payments).named("payments"))
        .with_timestamps(|payment| at(payment.second), policy)
        .named("payment times")
        .tee();
    let (paid, also_paid) = paid(orders, payments, within).tee();
    paid.write_to(lines_in(&folder, "paid.jsonl"));
    revenue(also_paid).write_to(lines_in(&folder, "revenue.jsonl"));
    overdue(also_orders, also_payments, within).write_to(lines_in(&folder, "overdue.jsonl"));
    Ok(p)
}

/// Creates a sink to a file of lines. The output of an epoch becomes visible when the epoch is
/// committed. The sink has its own name, like the sources, so that its state is restored
/// independently of the folder's path.
fn lines_in<T: Serialize + Send + 'static>(folder: &str, name: &str) -> Sink<T> {
    let lines = files::write_json_lines(Path::new(folder).join(name));
    lines.rotate_with_epochs().build().named(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(900);

    type Results = (Vec<Paid>, Vec<Overdue>, Vec<Revenue>);

    fn results(orders: &[(u64, i64)], payments: &[(u64, i64)]) -> Results {
        let p = Pipeline::new("orders");
        let order = |&(order, second): &(u64, i64)| Order {
            order,
            customer: format!("c{}", order % 2),
            second,
        };
        let payment = |&(order, second): &(u64, i64)| Payment {
            order,
            second,
            cents: 100 + order,
        };
        let policy = WatermarkPolicy::in_order();
        let orders: Vec<Order> = orders.iter().map(order).collect();
        let payments: Vec<Payment> = payments.iter().map(payment).collect();
        let (orders, also_orders) = p
            .read_from(collections::items(orders))
            .with_timestamps(|order| at(order.second), policy)
            .tee();
        let (payments, also_payments) = p
            .read_from(collections::items(payments))
            .with_timestamps(|payment| at(payment.second), policy)
            .tee();
        let (paid, also_paid) = paid(orders, payments, WITHIN).tee();
        let (paid, revenue) = (paid.collect(), revenue(also_paid).collect());
        let overdue = overdue(also_orders, also_payments, WITHIN).collect();
        p.run().unwrap();
        (
            paid.take_sorted(),
            overdue.take_sorted(),
            revenue.take_sorted(),
        )
    }

    fn numbers(orders: &[Overdue]) -> Vec<(u64, i64)> {
        let orders = orders.iter();
        orders.map(|order| (order.order, order.since)).collect()
    }

    #[test]
    fn an_order_is_paid_in_time_or_overdue_and_never_both() {
        let orders = [(1, 0), (2, 10), (3, 20), (4, 30)];
        let (paid, overdue, _) = results(&orders, &[(3, 20), (1, 900), (2, 911)]);
        let paid: Vec<_> = paid.iter().map(|paid| (paid.order, paid.after)).collect();
        assert_eq!(paid, [(1, 900), (3, 0)]);
        assert_eq!(numbers(&overdue), [(2, 910), (4, 930)]);
    }

    #[test]
    fn a_payment_without_an_order_is_no_news() {
        let (paid, overdue, revenue) = results(&[], &[(7, 5)]);
        assert_eq!((paid, overdue, revenue), (vec![], vec![], vec![]));
    }

    #[test]
    fn what_is_paid_is_summed_up_by_customer_and_hour() {
        let orders = [(1, 3_000), (2, 3_100), (3, 3_200), (5, 3_300)];
        let payments = [(1, 3_100), (2, 3_200), (3, 3_599), (5, 3_600)];
        let (_, _, revenue) = results(&orders, &payments);
        let of = |customer: &str, hour, orders, cents| Revenue {
            customer: customer.to_string(),
            hour,
            orders,
            cents,
        };
        let expected = [
            of("c0", 0, 1, 102),
            of("c1", 0, 2, 204),
            of("c1", 3_600, 1, 105),
        ];
        assert_eq!(revenue, expected);
    }
}
