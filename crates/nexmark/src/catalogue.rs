//! The lists of names, cities and categories from which events are built.

pub(crate) const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];

pub(crate) const LAST_NAMES: [&str; 9] = [
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
];

/// Cities with their states; query 3 selects Oregon, Idaho and California.
pub(crate) const CITIES: [(&str, &str); 10] = [
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

/// The first category number; query 3 selects it.
pub(crate) const FIRST_CATEGORY: u64 = 10;

pub(crate) const CATEGORIES: u64 = 5;
