//! Lessons about shapes of texts with code that is not in them, which decide which ones are
//! checked.
//!
//! A shape is checked at its first occurrences, and then occasionally. A shape that was found to
//! leave state is checked every time. One table belongs to one pool on one thread: the same name is
//! another function in another database.

/// Number of initial checks of a shape that calls functions; then one in [`VERIFY_EVERY`] is
/// checked.
pub(crate) const VERIFY_FIRST: u32 = 3;
/// See [`VERIFY_FIRST`].
pub(crate) const VERIFY_EVERY: u32 = 64;

/// Number of initial checks of shapes that only use tables, whose triggers and views hardly ever
/// leave state.
pub(crate) const HIDDEN_FIRST: u32 = 1;
/// See [`HIDDEN_FIRST`].
pub(crate) const HIDDEN_EVERY: u32 = 1024;

/// Maximum rate of checks of texts that only use tables: at most one in this many is checked, so
/// that a client with ever new shapes of texts does not pay for it. The first one is checked.
pub(crate) const HIDDEN_APART: u32 = 64;

/// Maximum shapes that are remembered, in sets of [`WAYS`]. The rarest one of a full set is
/// replaced.
const SHAPES_MAX: usize = 1024;
const WAYS: usize = 4;

/// Maximum number of extra checks of a shape because settings had other values than known. The
/// server normalizes many values, so this alone shows little; and other clients never get these
/// values.
const CHANGED_MAX: u8 = 8;

/// Maximum custom settings that are remembered.
const SETTING_NAMES_MAX: usize = 64;

/// Suspicion about a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SuspectText {
    /// Calls of unknown functions or procedures.
    Function,
    /// Use of tables, types or operators that may run code.
    Hidden,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CheckLesson {
    /// No state was left behind.
    Nothing,
    /// Unclear, because of earlier state.
    Unclear,
    /// Values of settings differ from the known ones, possibly only in spelling.
    Changed,
    /// State was left behind.
    Left,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShapeRecord {
    /// 0 is a free slot; a fingerprint of 0 is stored as 1.
    fingerprint: u64,
    /// Number of times that it was checked, or could have been.
    runs: u32,
    /// Number of times that settings had other values afterwards.
    changes: u8,
    /// True if it was found to leave state behind.
    is_dirty: bool,
}

/// The table. It allocates nothing before its first use.
#[derive(Debug, Default)]
pub(crate) struct LessonTable {
    shapes: Vec<ShapeRecord>,
    /// Texts with [`SuspectText::Hidden`] since the last one that was checked.
    since_hidden: Option<u32>,
    /// Custom settings that clients were seen to set.
    names: Vec<Box<str>>,
}

impl LessonTable {
    /// Returns the custom settings (`app.user`) that are known in this pool.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    /// Records that a client set this setting.
    pub(crate) fn saw_setting(&mut self, name: &str) {
        let is_new = name.contains('.') && !self.names.iter().any(|known| **known == *name);
        if is_new && self.names.len() < SETTING_NAMES_MAX {
            self.names.push(name.into());
        }
    }

    /// Returns whether a text of this shape is checked this time. Counts it if not: a check counts
    /// when it has a result. One whose transaction is rolled back never does.
    pub(crate) fn is_due(&mut self, subject: SuspectText, fingerprint: u64) -> bool {
        let (first, every) = match subject {
            SuspectText::Function => (VERIFY_FIRST, VERIFY_EVERY),
            SuspectText::Hidden => (HIDDEN_FIRST, HIDDEN_EVERY),
        };
        let since = self.since_hidden.map_or(HIDDEN_APART, |since| since.saturating_add(1));
        let shape = self.shape(fingerprint);
        if shape.is_dirty {
            return true;
        }
        let due = shape.runs < first || shape.runs.is_multiple_of(every);
        let postponed = due && subject == SuspectText::Hidden && since < HIDDEN_APART;
        let checked = due && !postponed;
        if !due {
            shape.runs = shape.runs.saturating_add(1);
        }
        if subject == SuspectText::Hidden {
            self.since_hidden = Some(if checked { 0 } else { since });
        }
        checked
    }

    /// Records the result of a check of a transaction with this shape.
    pub(crate) fn learn(&mut self, fingerprint: u64, lesson: CheckLesson) {
        let shape = self.shape(fingerprint);
        match lesson {
            CheckLesson::Nothing => shape.runs = shape.runs.saturating_add(1),
            CheckLesson::Unclear => shape.runs = 0,
            CheckLesson::Changed if shape.changes < CHANGED_MAX => {
                shape.changes += 1;
                shape.runs = 0;
            }
            CheckLesson::Changed => shape.runs = shape.runs.saturating_add(1),
            CheckLesson::Left => shape.is_dirty = true,
        }
    }

    /// Returns the slot of a shape; the rarest one of its set is replaced by a new one.
    fn shape(&mut self, fingerprint: u64) -> &mut ShapeRecord {
        if self.shapes.is_empty() {
            self.shapes = vec![ShapeRecord::default(); SHAPES_MAX];
        }
        let fingerprint = fingerprint.max(1);
        let sets = SHAPES_MAX / WAYS;
        // The high half of the product depends on every bit.
        let mixed = fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = usize::try_from(mixed).unwrap_or_default() % sets * WAYS;
        let ways = self.shapes.get_mut(set..set + WAYS).unwrap_or_default();
        let found = ways.iter().position(|it| it.fingerprint == fingerprint);
        let at = found.unwrap_or_else(|| {
            let rarity = |it: &ShapeRecord| (it.fingerprint != 0, it.is_dirty, it.runs);
            let rarest = ways.iter().enumerate().min_by_key(|(_, it)| rarity(it));
            rarest.map_or(0, |(index, _)| index)
        });
        let shape = &mut self.shapes[set + at];
        if shape.fingerprint != fingerprint {
            *shape = ShapeRecord { fingerprint, ..ShapeRecord::default() };
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(lessons: &mut LessonTable, subject: SuspectText, times: u32) -> Vec<u32> {
        let checked = |_: &u32| {
            let due = lessons.is_due(subject, 7);
            if due {
                lessons.learn(7, CheckLesson::Nothing);
            }
            due
        };
        (0..times).filter(checked).collect()
    }

    #[test]
    fn a_function_is_checked_at_first_and_then_now_and_then() {
        let mut lessons = LessonTable::default();
        assert_eq!(due(&mut lessons, SuspectText::Function, 200), [0, 1, 2, 64, 128, 192]);
    }

    #[test]
    fn what_is_rolled_back_again_and_again_is_checked_once_it_is_not() {
        let mut lessons = LessonTable::default();
        assert!((0..100).all(|_| lessons.is_due(SuspectText::Function, 7)));
        lessons.learn(7, CheckLesson::Left);
        assert!((0..100).all(|_| lessons.is_due(SuspectText::Function, 7)));
    }

    #[test]
    fn a_check_that_tells_nothing_does_not_count() {
        let mut lessons = LessonTable::default();
        for _ in 0..10 {
            assert!(lessons.is_due(SuspectText::Function, 7));
            lessons.learn(7, CheckLesson::Unclear);
        }
        assert_eq!(due(&mut lessons, SuspectText::Function, 10), [0, 1, 2]);
        let mut checks = 0;
        for _ in 0..60 {
            if lessons.is_due(SuspectText::Function, 8) {
                checks += 1;
                lessons.learn(8, CheckLesson::Changed);
            }
        }
        assert_eq!(checks, u32::from(CHANGED_MAX) + VERIFY_FIRST);
    }

    #[test]
    fn tables_are_checked_once_and_then_rarely() {
        let mut lessons = LessonTable::default();
        assert_eq!(due(&mut lessons, SuspectText::Hidden, 3000), [0, 1024, 2048]);
    }

    #[test]
    fn texts_of_many_shapes_are_not_all_checked() {
        let mut lessons = LessonTable::default();
        let checked = (0..6400).filter(|it| lessons.is_due(SuspectText::Hidden, *it)).count();
        assert_eq!(checked, 100);
    }

    #[test]
    fn what_left_something_is_always_checked_even_in_a_full_table() {
        let mut lessons = LessonTable::default();
        assert!(lessons.is_due(SuspectText::Hidden, 7));
        lessons.learn(7, CheckLesson::Left);
        for shape in 0..100_000 {
            lessons.is_due(SuspectText::Function, shape << 20);
        }
        assert!((0..100).all(|_| lessons.is_due(SuspectText::Hidden, 7)));
    }
}
