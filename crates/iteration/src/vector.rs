//! Updates of vectors: dense, or the changed components only.

use ardea_core::{Error, ErrorCode, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::binary::numbers;
use crate::fault::VariableFault;
use crate::merge::Merge;

/// Bytes of a component in a sparse update: its number, and the gap to the last index.
const SPARSE_COMPONENT_BYTES: usize = 10;
/// The largest size of a sparse vector: indices are numbers of 32 bits.
const MAX_SPARSE_SIZE: usize = u32::MAX as usize;
/// Bytes of a component in a dense update.
const DENSE_COMPONENT_BYTES: usize = 8;

/// The non-zero components of a vector, by ascending index.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SparseVector {
    size: usize,
    indices: Vec<u32>,
    numbers: Vec<f64>,
}

impl SparseVector {
    /// Creates a vector of `size` components from indices in ascending order and their numbers.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the indices are not ascending, exceed the size, or are not as
    /// many as the numbers, or if the size is above 2³² − 1.
    pub fn new(size: usize, indices: Vec<u32>, numbers: Vec<f64>) -> Result<Self> {
        let ascending = indices.windows(2).all(|pair| pair[0] < pair[1]);
        let within = indices.last().is_none_or(|last| (*last as usize) < size);
        let is_indexed = size <= MAX_SPARSE_SIZE && indices.len() == numbers.len();
        if ascending && within && is_indexed {
            return Ok(SparseVector {
                size,
                indices,
                numbers,
            });
        }
        Err(Error::new(
            ErrorCode::InvalidJob,
            format!(
                "a sparse vector of {size} components is invalid: {} indices, {} numbers",
                indices.len(),
                numbers.len()
            ),
        )
        .hint("give as many numbers as indices, with ascending indices below the size"))
    }

    /// Returns the non-zero components of a dense vector.
    pub fn from_dense(dense: &[f64]) -> Self {
        let set = dense
            .iter()
            .enumerate()
            .filter(|(_, number)| **number != 0.0);
        let (indices, numbers) = set.map(|(index, number)| (index as u32, *number)).unzip();
        SparseVector {
            size: dense.len(),
            indices,
            numbers,
        }
    }

    /// Returns the number of components, zeros included.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of stored components.
    pub fn stored(&self) -> usize {
        self.indices.len()
    }

    /// Returns the stored components with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let indices = self.indices.iter().map(|index| *index as usize);
        indices.zip(self.numbers.iter().copied())
    }

    /// Adds another vector.
    fn add(&mut self, other: &SparseVector) {
        let capacity = self.stored() + other.stored();
        let (mut indices, mut numbers) =
            (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        let (mut a, mut b) = (0, 0);
        while a < self.stored() || b < other.stored() {
            let left = self.indices.get(a).copied();
            let right = other.indices.get(b).copied();
            let takes_left = right.is_none_or(|right| left.is_some_and(|left| left <= right));
            let takes_right = left.is_none_or(|left| right.is_some_and(|right| right <= left));
            let mut number = 0.0;
            let mut index = 0;
            if takes_left {
                (index, number) = (self.indices[a], self.numbers[a]);
                a += 1;
            }
            if takes_right {
                index = other.indices[b];
                number = match takes_left {
                    true => number + other.numbers[b],
                    false => other.numbers[b],
                };
                b += 1;
            }
            indices.push(index);
            numbers.push(number);
        }
        self.size = self.size.max(other.size);
        (self.indices, self.numbers) = (indices, numbers);
    }
}

/// The serialized form: gaps between indices are small, and therefore short.
#[derive(Serialize, Deserialize)]
struct SparseBytes {
    size: usize,
    gaps: Vec<u32>,
    #[serde(with = "numbers")]
    numbers: Vec<f64>,
}

impl Serialize for SparseVector {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut last = 0;
        let gaps = self.indices.iter().map(|index| {
            let gap = index - last;
            last = *index;
            gap
        });
        let form = SparseBytes {
            size: self.size,
            gaps: gaps.collect(),
            numbers: self.numbers.clone(),
        };
        form.serialize(to)
    }
}

impl<'de> Deserialize<'de> for SparseVector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let form = SparseBytes::deserialize(from)?;
        let mut last = 0_u32;
        let indices = form.gaps.into_iter().map(|gap| {
            last = last.checked_add(gap)?;
            Some(last)
        });
        let indices: Option<Vec<u32>> = indices.collect();
        let indices = indices.ok_or_else(|| D::Error::custom("an index is too large"))?;
        SparseVector::new(form.size, indices, form.numbers).map_err(D::Error::custom)
    }
}

/// An update of a vector, which is added to it.
///
/// The merge of two sparse updates becomes dense as soon as that takes fewer bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum VectorUpdate {
    /// All components.
    Dense(#[serde(with = "numbers")] Vec<f64>),
    /// The changed components.
    Sparse(SparseVector),
}

impl VectorUpdate {
    /// Returns the number of components, zeros included.
    pub fn size(&self) -> usize {
        match self {
            VectorUpdate::Dense(dense) => dense.len(),
            VectorUpdate::Sparse(sparse) => sparse.size(),
        }
    }

    /// Returns the number of components that are sent.
    pub fn stored(&self) -> usize {
        match self {
            VectorUpdate::Dense(dense) => dense.len(),
            VectorUpdate::Sparse(sparse) => sparse.stored(),
        }
    }

    /// Adds the update to a vector of the same size.
    pub fn add_to(&self, vector: &mut [f64]) {
        match self {
            VectorUpdate::Dense(dense) => {
                for (sum, number) in vector.iter_mut().zip(dense) {
                    *sum += number;
                }
            }
            VectorUpdate::Sparse(sparse) => {
                for (index, number) in sparse.iter() {
                    if let Some(sum) = vector.get_mut(index) {
                        *sum += number;
                    }
                }
            }
        }
    }

    /// Returns all components.
    pub fn to_dense(&self) -> Vec<f64> {
        match self {
            VectorUpdate::Dense(dense) => dense.clone(),
            VectorUpdate::Sparse(sparse) => {
                let mut dense = vec![0.0; sparse.size()];
                self.add_to(&mut dense);
                dense
            }
        }
    }

    /// Returns the fault of an update for a vector of `size` components, if it has one.
    pub fn fault_for(&self, size: usize) -> Option<VariableFault> {
        if self.size() != size {
            return Some(VariableFault::WrongSize {
                expected: size,
                found: self.size(),
            });
        }
        self.fault()
    }

    fn is_shorter_dense(sparse: &SparseVector) -> bool {
        sparse.stored() * SPARSE_COMPONENT_BYTES > sparse.size() * DENSE_COMPONENT_BYTES
    }
}

impl Merge for VectorUpdate {
    fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (VectorUpdate::Sparse(sum), VectorUpdate::Sparse(other)) => {
                sum.add(&other);
                if VectorUpdate::is_shorter_dense(sum) {
                    *self = VectorUpdate::Dense(self.to_dense());
                }
            }
            (VectorUpdate::Dense(sum), other) => {
                if sum.len() < other.size() {
                    sum.resize(other.size(), 0.0);
                }
                other.add_to(sum);
            }
            (VectorUpdate::Sparse(_), VectorUpdate::Dense(mut other)) => {
                if other.len() < self.size() {
                    other.resize(self.size(), 0.0);
                }
                self.add_to(&mut other);
                *self = VectorUpdate::Dense(other);
            }
        }
    }

    fn fault(&self) -> Option<VariableFault> {
        match self {
            VectorUpdate::Dense(dense) => VariableFault::in_numbers(dense),
            VectorUpdate::Sparse(sparse) => {
                let fault = sparse.iter().find(|(_, number)| !number.is_finite());
                fault.map(|(index, value)| VariableFault::NotFinite {
                    index: Some(index),
                    value,
                })
            }
        }
    }
}

/// A sum of many sparse vectors: constant time per component, and no search.
#[derive(Clone, Debug)]
pub struct SparseAccumulator {
    sums: Vec<f64>,
    is_touched: Vec<bool>,
    touched: Vec<u32>,
}

impl SparseAccumulator {
    /// Creates a sum of vectors of `size` components.
    pub fn new(size: usize) -> Self {
        SparseAccumulator {
            sums: vec![0.0; size],
            is_touched: vec![false; size],
            touched: Vec::new(),
        }
    }

    /// Adds to a component.
    ///
    /// # Panics
    /// If the index is not below the size.
    #[inline]
    pub fn add(&mut self, index: u32, number: f64) {
        let at = index as usize;
        self.sums[at] += number;
        if !self.is_touched[at] {
            self.is_touched[at] = true;
            self.touched.push(index);
        }
    }

    /// Returns the sum of the touched components for which `keeps` returns true, as a sparse
    /// update, or as a dense one if that takes fewer bytes.
    pub fn into_update(mut self, keeps: impl Fn(usize, f64) -> bool) -> VectorUpdate {
        let sums = &self.sums;
        self.touched
            .retain(|index| keeps(*index as usize, sums[*index as usize]));
        self.touched.sort_unstable();
        let numbers = self.touched.iter().map(|index| sums[*index as usize]);
        let sparse = SparseVector {
            size: self.sums.len(),
            numbers: numbers.collect(),
            indices: self.touched,
        };
        match VectorUpdate::is_shorter_dense(&sparse) {
            true => VectorUpdate::Dense(VectorUpdate::Sparse(sparse).to_dense()),
            false => VectorUpdate::Sparse(sparse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_update_is_shorter_than_a_dense_one() {
        let mut dense = vec![0.0; 1000];
        dense[3] = 1.5;
        dense[999] = -2.0;
        let sparse = VectorUpdate::Sparse(SparseVector::from_dense(&dense));
        let short = postcard::to_allocvec(&sparse).unwrap();
        let long = postcard::to_allocvec(&VectorUpdate::Dense(dense.clone())).unwrap();
        assert!(
            short.len() < 30 && long.len() > 8000,
            "{} {}",
            short.len(),
            long.len()
        );
        let decoded: VectorUpdate = postcard::from_bytes(&short).unwrap();
        assert_eq!(decoded, sparse);
        assert_eq!(decoded.to_dense(), dense);
    }

    #[test]
    fn a_sum_with_many_components_becomes_dense() {
        let mut even =
            VectorUpdate::Sparse(SparseVector::new(4, vec![0, 2], vec![1.0; 2]).unwrap());
        even.merge(VectorUpdate::Sparse(
            SparseVector::new(4, vec![1, 2, 3], vec![1.0; 3]).unwrap(),
        ));
        assert_eq!(even, VectorUpdate::Dense(vec![1.0, 1.0, 2.0, 1.0]));
    }

    #[test]
    fn an_accumulator_returns_ascending_components_that_pass_the_filter() {
        let mut sum = SparseAccumulator::new(100);
        for (index, number) in [(70, 1.0), (3, 2.0), (70, 1.0), (5, 0.1)] {
            sum.add(index, number);
        }
        let VectorUpdate::Sparse(update) = sum.into_update(|_, number| number > 0.5) else {
            panic!("3 of 100 components are no dense update");
        };
        assert_eq!(update.iter().collect::<Vec<_>>(), [(3, 2.0), (70, 2.0)]);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let form = SparseBytes {
            size: 4,
            gaps: vec![9],
            numbers: vec![1.0],
        };
        let bytes = postcard::to_allocvec(&form).unwrap();
        assert!(postcard::from_bytes::<SparseVector>(&bytes).is_err());
        let form = SparseBytes {
            size: usize::MAX,
            gaps: vec![1],
            numbers: vec![1.0],
        };
        let bytes = postcard::to_allocvec(&form).unwrap();
        assert!(postcard::from_bytes::<SparseVector>(&bytes).is_err());
        assert!(SparseVector::new(4, vec![2, 1], vec![1.0; 2]).is_err());
        assert!(SparseVector::new(4, vec![2], vec![]).is_err());
    }

    #[test]
    fn a_number_that_is_not_finite_is_found_with_its_index() {
        let update =
            VectorUpdate::Sparse(SparseVector::new(9, vec![1, 7], vec![1.0, f64::NAN]).unwrap());
        let fault = update.fault().unwrap();
        assert_eq!(fault.to_string(), "component 7 is NaN");
        let fault = VectorUpdate::Dense(vec![0.0; 3]).fault_for(4).unwrap();
        assert_eq!(
            fault.to_string(),
            "the update has 3 components instead of 4"
        );
    }
}
