//! The same training in scikit-learn, on one core.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use ardea_ml::Examples;

use crate::python;
use crate::report::Field;

/// The program around the training: only the training is timed.
const PROGRAM: &str = r"
import json, os, sys, time
for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'):
    os.environ[name] = '1'
import numpy, scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
folder, features, l2 = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
read = lambda name, kind: numpy.fromfile(os.path.join(folder, name), dtype=kind)
labels = read('labels', '<f8')
x = scipy.sparse.csr_matrix((read('numbers', '<f8'), read('indices', '<i4'), read('ends', '<i8')),
    shape=(len(labels), features))
model = LogisticRegression(C=1 / (l2 * len(labels)), solver='lbfgs', max_iter=200)
begin = time.process_time()
model.fit(x, labels)
cpu_s = time.process_time() - begin
print(json.dumps({'scikit_learn_cpu_s': cpu_s, 'scikit_learn_accuracy': model.score(x, labels),
    'scikit_learn_loss': log_loss(labels, model.predict_proba(x))}))
";

const NAMES: [&str; 3] = [
    "scikit_learn_cpu_s",
    "scikit_learn_loss",
    "scikit_learn_accuracy",
];

/// Trains on the examples; all fields are `null` if there is no such Python, or if it fails.
pub(super) fn run(examples: Option<&Examples>, l2: f64) -> Vec<Field> {
    let answer = examples.and_then(|examples| {
        let folder = tempfile::tempdir().ok()?;
        write(examples, folder.path()).ok()?;
        let (features, l2) = (examples.features().to_string(), l2.to_string());
        let arguments: [OsString; 3] = [folder.path().into(), features.into(), l2.into()];
        python::run(PROGRAM, arguments)
    });
    let answer = answer.unwrap_or_default();
    let field = |name| (name, answer.get(name).cloned().unwrap_or_default());
    NAMES.map(field).into()
}

/// Writes the matrix in compressed rows, each array to a file.
fn write(examples: &Examples, folder: &Path) -> std::io::Result<()> {
    let labels = examples
        .labels()
        .iter()
        .flat_map(|label| label.to_le_bytes());
    fs::write(folder.join("labels"), labels.collect::<Vec<u8>>())?;
    let create = |name| Ok::<_, std::io::Error>(BufWriter::new(File::create(folder.join(name))?));
    let (mut indices, mut numbers, mut ends) =
        (create("indices")?, create("numbers")?, create("ends")?);
    let mut end = 0_i64;
    ends.write_all(&end.to_le_bytes())?;
    for row in 0..examples.len() {
        let mut outcome = Ok(());
        examples.visit(row, |index, number| {
            let written = indices.write_all(&index.to_le_bytes());
            let written = written.and_then(|()| numbers.write_all(&number.to_le_bytes()));
            if written.is_err() {
                outcome = written;
            }
            end += 1;
        });
        outcome?;
        ends.write_all(&end.to_le_bytes())?;
    }
    indices.flush()?;
    numbers.flush()?;
    ends.flush()
}
