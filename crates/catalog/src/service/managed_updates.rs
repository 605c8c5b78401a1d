//! Updates of tables and views that only their managers may make.

use iceberg::update::TableUpdate;
use iceberg::view::ViewUpdate;

/// Property that protects an object, if it is `true`.
pub const PROTECTED: &str = "protected";

/// Returns whether updates of a table affect its protection, which requires the right to manage it.
pub(super) fn touches_protection(updates: &[TableUpdate]) -> bool {
    updates.iter().any(|update| match update {
        TableUpdate::SetProperties(properties) => properties.get(PROTECTED).is_some(),
        TableUpdate::RemoveProperties(names) => names.iter().any(|it| it == PROTECTED),
        _ => false,
    })
}

/// Returns whether updates of a table change its location: away from its present files.
pub(super) fn moves_away(updates: &[TableUpdate]) -> bool {
    updates.iter().any(|update| matches!(update, TableUpdate::SetLocation(_)))
}

/// Returns whether updates of a view affect its protection, which requires the right to manage it.
pub(super) fn view_touches_protection(updates: &[ViewUpdate]) -> bool {
    updates.iter().any(|update| match update {
        ViewUpdate::SetProperties(properties) => properties.get(PROTECTED).is_some(),
        ViewUpdate::RemoveProperties(names) => names.iter().any(|it| it == PROTECTED),
        _ => false,
    })
}
