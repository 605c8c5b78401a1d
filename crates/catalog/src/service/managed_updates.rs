//! Updates of tables and views that only who manages them may make.

use iceberg::update::TableUpdate;
use iceberg::view::ViewUpdate;

/// The property that protects what has it, when it is `true`.
pub const PROTECTED: &str = "protected";

/// Returns whether changes of a table touch what only who manages it may.
pub(super) fn touches_protection(updates: &[TableUpdate]) -> bool {
    updates.iter().any(|update| match update {
        TableUpdate::SetProperties(properties) => properties.get(PROTECTED).is_some(),
        TableUpdate::RemoveProperties(names) => names.iter().any(|it| it == PROTECTED),
        _ => false,
    })
}

/// Returns whether changes of a table take it to another place: away from the files that it has.
pub(super) fn moves_away(updates: &[TableUpdate]) -> bool {
    updates.iter().any(|update| matches!(update, TableUpdate::SetLocation(_)))
}

/// Returns whether changes of a view touch what only who manages it may.
pub(super) fn view_touches_protection(updates: &[ViewUpdate]) -> bool {
    updates.iter().any(|update| match update {
        ViewUpdate::SetProperties(properties) => properties.get(PROTECTED).is_some(),
        ViewUpdate::RemoveProperties(names) => names.iter().any(|it| it == PROTECTED),
        _ => false,
    })
}
