//! Labelled rows of numbers.

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::Dataset;

use crate::seeded_random::SeededRandom;

#[derive(Clone, PartialEq, Debug)]
enum Rows {
    Dense(Vec<f64>),
    Sparse {
        /// The end of each row in the other lists.
        ends: Vec<usize>,
        indices: Vec<u32>,
        numbers: Vec<f64>,
    },
}

/// Labelled rows with the same number of features. All numbers are finite.
#[derive(Clone, PartialEq, Debug)]
pub struct Examples {
    features: usize,
    labels: Vec<f64>,
    rows: Rows,
}

impl Examples {
    /// Creates an empty list of rows that store all features.
    pub fn dense(features: usize) -> Self {
        Examples::with(features, Rows::Dense(Vec::new()))
    }

    /// Creates an empty list of rows that store non-zero features only.
    pub fn sparse(features: usize) -> Self {
        let rows = Rows::Sparse {
            ends: Vec::new(),
            indices: Vec::new(),
            numbers: Vec::new(),
        };
        Examples::with(features, rows)
    }

    fn with(features: usize, rows: Rows) -> Self {
        Examples {
            features,
            labels: Vec::new(),
            rows,
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the number of features.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Returns the labels of all rows.
    pub fn labels(&self) -> &[f64] {
        &self.labels
    }

    /// Returns true if rows store non-zero features only.
    pub fn is_sparse(&self) -> bool {
        matches!(self.rows, Rows::Sparse { .. })
    }

    /// Adds a row of all features.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if the row has another number of features, or if a number is not
    /// finite.
    pub fn push_dense(&mut self, label: f64, row: &[f64]) -> Result<()> {
        if row.len() != self.features {
            let what = format!(
                "row {} has {} features instead of {}",
                self.len(),
                row.len(),
                self.features
            );
            return Err(Error::new(ErrorCode::BadRecord, what).hint("give all rows the same size"));
        }
        self.check_numbers(label, row.iter().copied().enumerate())?;
        match &mut self.rows {
            Rows::Dense(all) => all.extend_from_slice(row),
            Rows::Sparse {
                ends,
                indices,
                numbers,
            } => {
                for (index, number) in row.iter().enumerate().filter(|(_, n)| **n != 0.0) {
                    indices.push(index as u32);
                    numbers.push(*number);
                }
                ends.push(indices.len());
            }
        }
        self.labels.push(label);
        Ok(())
    }

    /// Adds a row of non-zero features by ascending index, from zero.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if an index is not ascending or not below the number of features,
    /// or if a number is not finite.
    pub fn push_sparse(&mut self, label: f64, row: &[(u32, f64)]) -> Result<()> {
        let bad = |index: u32, reason: String| {
            let what = format!("row {} has an invalid index {index}: {reason}", self.len());
            Err(Error::new(ErrorCode::BadRecord, what))
        };
        if let Some(pair) = row.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return bad(pair[1].0, format!("it follows {}", pair[0].0));
        }
        if let Some((last, _)) = row.last()
            && *last as usize >= self.features
        {
            return bad(*last, format!("there are {} features", self.features));
        }
        self.check_numbers(label, row.iter().map(|(index, n)| (*index as usize, *n)))?;
        match &mut self.rows {
            Rows::Dense(all) => {
                let begin = all.len();
                all.resize(begin + self.features, 0.0);
                for (index, number) in row {
                    all[begin + *index as usize] = *number;
                }
            }
            Rows::Sparse {
                ends,
                indices,
                numbers,
            } => {
                indices.extend(row.iter().map(|(index, _)| *index));
                numbers.extend(row.iter().map(|(_, number)| *number));
                ends.push(indices.len());
            }
        }
        self.labels.push(label);
        Ok(())
    }

    /// Removes the features from `features` on, which no row stores. Sparse rows only.
    pub(crate) fn trim_features(&mut self, features: usize) {
        self.features = features;
    }

    fn check_numbers(&self, label: f64, numbers: impl Iterator<Item = (usize, f64)>) -> Result<()> {
        let bad = |what: String| Err(Error::new(ErrorCode::BadRecord, what));
        if !label.is_finite() {
            return bad(format!("row {} has the label {label}", self.len()));
        }
        for (index, number) in numbers {
            if !number.is_finite() {
                return bad(format!("feature {index} of row {} is {number}", self.len()));
            }
        }
        Ok(())
    }

    /// Returns the sum of products of a row's features and `weights`.
    ///
    /// # Panics
    /// If there is no such row, or if there are fewer weights than features.
    #[inline]
    pub fn dot(&self, row: usize, weights: &[f64]) -> f64 {
        match &self.rows {
            Rows::Dense(all) => {
                let row = &all[row * self.features..(row + 1) * self.features];
                row.iter().zip(weights).map(|(x, w)| x * w).sum()
            }
            Rows::Sparse {
                ends,
                indices,
                numbers,
            } => {
                let begin = if row == 0 { 0 } else { ends[row - 1] };
                let span = begin..ends[row];
                let products = indices[span.clone()].iter().zip(&numbers[span]);
                products
                    .map(|(index, x)| x * weights[*index as usize])
                    .sum()
            }
        }
    }

    /// Calls `visit` with the index and number of each stored feature of a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn visit(&self, row: usize, mut visit: impl FnMut(u32, f64)) {
        match &self.rows {
            Rows::Dense(all) => {
                let row = &all[row * self.features..(row + 1) * self.features];
                for (index, number) in row.iter().enumerate() {
                    visit(index as u32, *number);
                }
            }
            Rows::Sparse {
                ends,
                indices,
                numbers,
            } => {
                let begin = if row == 0 { 0 } else { ends[row - 1] };
                let span = begin..ends[row];
                for (index, number) in indices[span.clone()].iter().zip(&numbers[span]) {
                    visit(*index, *number);
                }
            }
        }
    }

    /// Splits the rows into partitions of equal size, up to one row, in an order given by the seed.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the number of partitions is zero or too large.
    pub fn split(&self, partitions: usize, seed: u64) -> Result<Dataset<Examples>> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        SeededRandom::new(seed).shuffle(&mut order);
        let parts = Dataset::split(order, partitions)?;
        let parts = parts.partitions().iter().map(|order| {
            let mut part = match self.is_sparse() {
                true => Examples::sparse(self.features),
                false => Examples::dense(self.features),
            };
            for row in order {
                part.copy_row(self, *row);
            }
            part
        });
        Dataset::of_partitions(parts.collect())
    }

    /// Appends a row of other examples in the same form.
    fn copy_row(&mut self, from: &Examples, row: usize) {
        match &mut self.rows {
            Rows::Dense(all) => from.visit(row, |_, number| all.push(number)),
            Rows::Sparse {
                ends,
                indices,
                numbers,
            } => {
                from.visit(row, |index, number| {
                    indices.push(index);
                    numbers.push(number);
                });
                ends.push(indices.len());
            }
        }
        self.labels.push(from.labels[row]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_another_size_are_refused() {
        let mut examples = Examples::dense(3);
        examples.push_dense(1.0, &[1.0, 2.0, 3.0]).unwrap();
        let error = examples.push_dense(1.0, &[1.0, 2.0]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRecord);
        assert!(
            error
                .to_string()
                .contains("row 1 has 2 features instead of 3"),
            "{error}"
        );
        for row in [&[(3, 1.0)][..], &[(1, 1.0), (1, 2.0)], &[(0, f64::NAN)]] {
            let error = examples.push_sparse(1.0, row).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRecord);
        }
        assert_eq!(examples.len(), 1);
    }

    #[test]
    fn dense_and_sparse_rows_have_the_same_content() {
        let (mut dense, mut sparse) = (Examples::dense(4), Examples::sparse(4));
        for examples in [&mut dense, &mut sparse] {
            examples.push_dense(1.0, &[0.0, 2.0, 0.0, -1.0]).unwrap();
            examples.push_sparse(-1.0, &[(2, 5.0)]).unwrap();
        }
        let weights = [1.0, 10.0, 100.0, 1000.0];
        for row in 0..2 {
            assert_eq!(dense.dot(row, &weights), sparse.dot(row, &weights));
        }
        let parts = sparse.split(2, 7).unwrap();
        let sizes = parts.partitions().iter().map(Examples::len);
        assert_eq!(sizes.collect::<Vec<_>>(), [1, 1]);
        let sums: f64 = parts
            .partitions()
            .iter()
            .map(|part| part.dot(0, &weights))
            .sum();
        assert_eq!(sums, -480.0);
    }
}
