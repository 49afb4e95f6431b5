//! The descriptions of all jobs for the command line.

use crate::{ExampleJob, orders, payments, rules, sensors, sessions, tail, wordcount};

pub(crate) const JOBS: &[ExampleJob] = &[
ExampleJob {
    name: "flights",
    about: "Replay the departures from New York in 2013 and show their delays in a live table",
    usage: "\
ardea run flights [--speed N] [--out-of-order T] [--data DIR]

  --speed N|max      times faster than it happened (525600: a year in a minute)
  --out-of-order T   how long to wait for delayed flights; later ones are late (16h)
  --data DIR         read flights.csv.zst and the others there, not those in the program",
    build: ardea_demo::build,
},
ExampleJob {
    name: "wordcount",
    about: "Count the words of a text and print the most frequent ones",
    usage: "\
ardea run wordcount FILE [--top N]

  FILE      a text in UTF-8, plain or compressed, or a directory of such; - for standard input
  --top N   how many words to print (20)",
    build: wordcount::build,
},
ExampleJob {
    name: "rules",
    about: "Watch card payments and print alerts: many in a minute, a hold that is not settled",
    usage: "\
ardea run rules FILE [--out-of-order T]

  FILE               JSON lines such as {\"card\":\"c1\",\"second\":1700000000,\"action\":\"pay\"},
                     where action is pay, hold or settle; - for standard input
  --out-of-order T   how much later than others an event may come (5s)",
    build: rules::build,
},
ExampleJob {
    name: "orders",
    about: "Match orders and payments: paid in time, overdue, paid by the hour; with exactly-once results",
    usage: "\
ardea run orders ORDERS PAYMENTS DIR [--within T] [--out-of-order T]

  ORDERS             JSON lines such as {\"order\":1,\"customer\":\"c1\",\"second\":1700000000}
  PAYMENTS           JSON lines such as {\"order\":1,\"second\":1700000060,\"cents\":1250}
  DIR                gets paid-….jsonl, overdue-….jsonl and revenue-….jsonl, numbered
  --within T         how soon an order has to be paid (15m)
  --out-of-order T   how much later than others an order or a payment may come (5s)

With the settings guarantee=exactly-once and checkpoints.folder=STATE it goes on where it was when it is
killed and run again, and each result is there once.",
    build: orders::build,
},
ExampleJob {
    name: "sensors",
    about: "Sum up 70 channels of a drill in windows, with early results, in a live table",
    usage: "\
ardea run sensors [--rate N] [--seconds N] [--window T] [--early T]
ardea run sensors --listen PORT [--window T] [--early T]

  --rate N        generated readings a second, over all channels (7000)
  --seconds N     end after so many seconds; without it, at Ctrl-C
  --listen PORT   take lines of \"CHANNEL VALUE\", channels 0 to 69, from TCP clients instead, timed
                  when they arrive
  --window T      the length of a window (5s)
  --early T       how often an open window shows what it has (500ms)",
    build: sensors::build,
},
ExampleJob {
    name: "sessions",
    about: "Print the visits in a web server's log: host, time, duration and number of pages",
    usage: "\
ardea run sessions FILE [--gap T] [--out-of-order T]

  FILE               lines in the Common Log Format, as Apache and nginx write them; - for standard input
  --gap T            a longer pause between two requests of a host is the end of a visit (30m)
  --out-of-order T   how much later than others a line may come (10s)",
    build: sessions::build,
},
ExampleJob {
    name: "payments",
    about: "Lead payments through 150 stages and print the latency of each second",
    usage: "\
ardea run payments [--rate N] [--seconds N]

  --rate N      payments a second (1000)
  --seconds N   for how long (10)",
    build: payments::build,
},
ExampleJob {
    name: "tail",
    about: "Follow a growing log and print how many errors came in every ten seconds",
    usage: "\
ardea run tail FILE [--match TEXT] [--every T] [--from start|end]

  FILE           a log; followed through rotation and truncation, until Ctrl-C
  --match TEXT   a line with this in it counts as an error (ERROR)
  --every T      how often the errors are told (10s)
  --from P       where to begin: at the start of what is there, or at its end (start)",
    build: tail::build,
}
];
