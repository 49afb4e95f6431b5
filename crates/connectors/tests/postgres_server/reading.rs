//! Tests of the source.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::postgres::{PostgresSource, query, read};
use ardea_core::{Epoch, ErrorCode, Instance, Parallelism, ProcessorSupplier};
use ardea_pipeline::Pipeline;
use ardea_testkit::{CapturedEpoch, ExternalHarness, TestRandom};
use serde::Deserialize;

use super::environment::{ask, number, own_server, shared_server, url};

#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Order {
    pub id: i64,
    pub name: String,
    pub price: Option<f64>,
}

pub fn several(instances: u32) -> Parallelism {
    Parallelism::Exactly(NonZeroU32::new(instances).unwrap())
}

pub fn create(url: &str, table: &str, count: u64) {
    ask(
        url,
        &format!(
            "create table {table} (id bigint primary key, name text, price numeric); insert into {table} \
             select n * 7 - 300, 'order ' || n, case when n % 2 = 0 then n / 4.0 end from generate_series(0, {count} - 1) n"
        ),
    );
}

pub fn small<T: serde::de::DeserializeOwned + Send + 'static>(
    source: PostgresSource<T>,
) -> PostgresSource<T> {
    let number = |n| NonZeroU32::new(n).unwrap();
    source.page(number(30)).blocks_of(number(100))
}

pub fn supplier(source: PostgresSource<Order>) -> Arc<dyn ProcessorSupplier> {
    source.build().into_parts().1
}

pub fn assert_each_once(mut orders: Vec<Order>, count: u64) {
    orders.sort_by_key(|order| order.id);
    let ids = orders.iter().map(|order| order.id);
    assert!(ids.eq((0..count as i64).map(|n| n * 7 - 300)));
}

#[test]
fn rows_are_read_in_the_order_of_their_key() {
    let Some(url) = shared_server() else { return };
    create(&url, "orders", 2_500);
    let p = Pipeline::new("read");
    let orders = p
        .read_from(read::<Order>(&url, "orders", "id").build())
        .collect();
    p.run().unwrap();
    let orders = orders.take();
    assert!(orders.is_sorted_by_key(|order| order.id));
    let second = Order {
        id: -286,
        name: "order 2".into(),
        price: Some(0.5),
    };
    assert_eq!((&orders[2], orders[1].price), (&second, None));
    assert_each_once(orders, 2_500);
}

#[test]
fn a_query_is_read_by_a_key_of_any_type() {
    let Some(url) = shared_server() else { return };
    create(&url, "queried", 500);
    let p = Pipeline::new("read");
    let select = "select name, id from queried where price is not null";
    #[derive(Clone, Debug, Deserialize)]
    struct Name {
        name: String,
    }
    let source = small(query::<Name>(&url, select, "name"));
    let names = p.read_from(source.build()).map(|row| row.name).collect();
    p.run().unwrap();
    let mut expected: Vec<_> = (0..500).step_by(2).map(|n| format!("order {n}")).collect();
    expected.sort();
    assert_eq!(names.take_sorted(), expected);
}

#[test]
fn several_instances_share_a_table() {
    let Some(url) = shared_server() else { return };
    create(&url, "parallel", 3_000);
    let p = Pipeline::new("read");
    let source = small(read::<Order>(&url, "parallel", "id"));
    let source = source.parallelism(Parallelism::Exactly(NonZeroU32::new(3).unwrap()));
    let orders = p.read_from(source.build()).collect();
    p.run().unwrap();
    assert_each_once(orders.take(), 3_000);
}

#[test]
fn each_row_is_read_once_whatever_dies() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    create(&url, "torn", 2_000);
    let source = supplier(small(read::<Order>(&url, "torn", "id")));
    let mut lot = TestRandom::new(11);
    let mut orders: Vec<Order> = Vec::new();
    let mut kept = None::<CapturedEpoch>;
    for epoch in 1..=40 {
        let count = [1, 3, 2, 2, 1, 4][epoch as usize % 6];
        let instance = |index| Instance {
            index,
            parallelism: count,
        };
        let mut all: Vec<_> = (0..count)
            .map(|index| ExternalHarness::begin(&source, "torn", instance(index), kept.as_ref()))
            .collect();
        let mut read = Vec::new();
        for life in &mut all {
            life.read(lot.below(60), &mut read);
        }
        if epoch % 10 == 0 {
            server.kill();
            server.restart();
        }
        let snapshots = all
            .iter_mut()
            .map(|life| life.end_epoch(Epoch(epoch), true));
        let together = CapturedEpoch::merge(snapshots);
        // Sometimes the rows read since the last commit are lost.
        if lot.below(4) > 0 {
            kept = Some(together);
            orders.append(&mut read);
        }
    }
    let mut last = ExternalHarness::begin(&source, "torn", Instance::ONLY, kept.as_ref());
    assert!(last.read(usize::MAX / 2, &mut orders));
    assert_each_once(orders, 2_000);
    let kept = last.end_epoch(Epoch(41), false);
    let mut again = ExternalHarness::begin(&source, "torn", Instance::ONLY, Some(&kept));
    assert!(again.read(1, &mut Vec::<Order>::new()), "it is at its end");
}

#[test]
fn rows_that_would_be_passed_over_fail_the_job() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table twice (id bigint, name text, price numeric); \
         insert into twice select n / 2, '', 0 from generate_series(0, 99) n; \
         create table nulls (id bigint, name text, price numeric); insert into nulls values (1, '', 0), (null, '', 0)",
    );
    let failed = |source: PostgresSource<Order>| {
        let p = Pipeline::new("read");
        let _orders = p.read_from(small(source).build()).collect();
        p.run().expect_err("it can't be read")
    };
    let error = failed(read(&url, "twice", "id"));
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("not unique"), "{error}");
    let error = failed(read(&url, "nulls", "id"));
    assert!(error.to_string().contains("null"), "{error}");
    create(&url, "named", 10);
    let two = Parallelism::Exactly(NonZeroU32::new(2).unwrap());
    let error = failed(read(&url, "named", "name").parallelism(two));
    assert!(error.to_string().contains("integer"), "{error}");
    assert_eq!(
        failed(read(&url, "nowhere", "id")).code(),
        ErrorCode::InvalidJob
    );
}

#[test]
fn a_row_that_is_no_record_is_a_dead_letter_with_its_key() {
    let Some(url) = shared_server() else { return };
    create(&url, "odd", 3);
    ask(&url, "update odd set name = null where id = -293");
    let source = supplier(read::<Order>(&url, "odd", "id"));
    let mut life = ExternalHarness::begin(&source, "odd", Instance::ONLY, None);
    let mut orders = Vec::<Order>::new();
    assert!(life.read(10, &mut orders));
    assert_eq!(orders.len(), 2);
    let letters = life.dead_letters().sample();
    assert_eq!(letters[0].origin, "odd where id = -293");
}

/// SQL function that makes each statement reading only keys wait for an advisory lock.
const HOLD: &str = "create function hold() returns boolean language plpgsql stable as $$ begin \
     if current_query() like '%null::text as json%' then perform pg_advisory_xact_lock(16); end if; \
     return true; end $$";

#[test]
fn a_page_whose_rows_are_removed_while_they_are_read_is_not_the_end() {
    let Some(url) = shared_server() else { return };
    create(&url, "vanishing", 100);
    ask(&url, HOLD);
    let select = "select id, name, case when id < 0 then 1 / (id - id) end as price \
                  from vanishing where (select hold())";
    let source = supplier(small(query::<Order>(&url, select, "id")));
    let (locked, lock) = std::sync::mpsc::channel();
    let remove = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async {
            let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            tokio::spawn(connection);
            client
        });
        let act = |sql| runtime.block_on(client.simple_query(sql)).unwrap();
        act("select pg_advisory_lock(16)");
        locked.send(()).unwrap();
        let waiting = "select count(*) from pg_locks \
                       where locktype = 'advisory' and objid = 16 and not granted";
        let deadline = Instant::now() + Duration::from_secs(60);
        while number(&url, waiting) == 0 {
            assert!(Instant::now() < deadline, "no keys are read");
        }
        // Closing the connection releases the lock.
        act("delete from vanishing where id < 0");
    };
    let mut orders = Vec::<Order>::new();
    std::thread::scope(|scope| {
        scope.spawn(remove);
        lock.recv().unwrap();
        let mut life = ExternalHarness::begin(&source, "vanishing", Instance::ONLY, None);
        assert!(life.read(1_000, &mut orders));
        assert_eq!(life.dead_letters().count(), 0);
    });
    assert!(
        orders
            .iter()
            .map(|order| order.id)
            .eq((43..100).map(|n| n * 7 - 300))
    );
}
