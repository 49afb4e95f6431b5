//! Persons: names and addresses.

use super::Generator;
use super::ids::{FIRST_ID, newest_person};
use crate::Person;
use crate::catalogue::{CITIES, FIRST_NAMES, LAST_NAMES};
use crate::random::EventRandom;

impl Generator {
    /// Returns event `index`, which is a person.
    pub(super) fn person(&self, index: u64, random: &mut EventRandom) -> Person {
        let name = format!(
            "{} {}",
            random.one_of(&FIRST_NAMES),
            random.one_of(&LAST_NAMES)
        );
        let email_address = format!("{}@{}.com", random.letters(7), random.letters(5));
        let group: [u64; 4] = std::array::from_fn(|_| random.below(10_000));
        let credit_card = format!(
            "{:04} {:04} {:04} {:04}",
            group[0], group[1], group[2], group[3]
        );
        let (city, state) = random.one_of(&CITIES);
        let numbers = 2 * size_of::<u64>();
        let size = numbers
            + name.len()
            + email_address.len()
            + credit_card.len()
            + city.len()
            + state.len();
        Person {
            id: FIRST_ID + newest_person(index),
            name,
            email_address,
            credit_card,
            city: city.to_owned(),
            state: state.to_owned(),
            date_time: self.schedule.date_time_ms(index),
            extra: random.padding(size, self.config.person_bytes),
        }
    }
}
