//! The lists that events choose from: names, cities, categories.

pub(crate) const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];

pub(crate) const LAST_NAMES: [&str; 9] = [
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
];

/// Cities with the states they are in; query 3 asks for Oregon, Idaho and California.
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

/// Categories are numbered from here; query 3 asks for this one.
pub(crate) const FIRST_CATEGORY: u64 = 10;

pub(crate) const CATEGORIES: u64 = 5;
