//! Persons: names, addresses and where they live.

use super::ids::{FIRST_ID, newest_person};
use super::Generator;
use crate::Person;
use crate::random::EventRandom;

const FIRST_NAMES: [&str; 11] =
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];
const LAST_NAMES: [&str; 9] = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];

/// Cities with the states they are in; query 3 asks for Oregon, Idaho and California.
const CITIES: [(&str, &str); 10] = [
    ("Phoenix", "AZ"),
    ("Los Angeles", "CA"),
    ("San Francisco", "CA"),
    ("Boise", "ID"),
    ("Portland", "OR"),
    ("Bend", "OR"),
    ("Redmond", "WA"),
    ("Seattle", "WA"),
    ("Kent", "WA"),
    ("Cheyenne", "WY"),
];

impl Generator {
    /// The person that event `index` is.
    pub(super) fn person(&self, index: u64, random: &mut EventRandom) -> Person {
        let name = format!("{} {}", random.one_of(&FIRST_NAMES), random.one_of(&LAST_NAMES));
        let email_address = format!("{}@{}.com", random.letters(7), random.letters(5));
        let group: [u64; 4] = std::array::from_fn(|_| random.below(10_000));
        let credit_card = format!("{:04} {:04} {:04} {:04}", group[0], group[1], group[2], group[3]);
        let (city, state) = random.one_of(&CITIES);
        let numbers = 2 * size_of::<u64>();
        let size = numbers + name.len() + email_address.len() + credit_card.len() + city.len() + state.len();
        Person {
            id: FIRST_ID + newest_person(index),
            name,
            email_address,
            credit_card,
            city: city.to_owned(),
            state: state.to_owned(),
            date_time: self.schedule.date_time_ms(index),
            extra: random.filling(size, self.config.person_bytes),
        }
    }
}
