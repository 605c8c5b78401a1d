//! Templates, their builds and tags, layers of steps, and archives that steps copy from.
//!
//! A build uses its layers from the moment they are recorded, whether it succeeds or not. A layer
//! is found by the key of its step until the last build, session or snapshot that uses it is gone.

use api::TemplateBuildStatus;
use node::store::{SqlRow, SqlStoreError, StoreTransaction};

use super::access::TableAccess;
use super::layers::{begin_chain, use_chain};
use super::rows::{
    LayerRow, SealedBlob, TemplateArchiveRow, TemplateBuildRow, TemplateRow, TemplateTagRow,
};
use super::schema::{SessionColumns, json, limit, number, number_or_null, text, text_or_null};
use crate::error::SessionError;

const TEMPLATE: &str = "id, tenant, name, created_ms, updated_ms";

/// All columns of a build except its log, which is large.
const BUILD: &str = "id, template, tenant, status, detail, chain, env, owner, created_ms, \
    updated_ms, finished_ms";

const ARCHIVE: &str = "tenant, name, objects, pieces, bytes, used_ms";

/// Maximum number of builds of a template that a removal examines.
const BUILDS_MAX: usize = super::access::PAGE_MAX;

/// Limits for a new build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildBounds {
    /// Maximum number of templates of the tenant.
    pub(crate) templates_max: u64,
    /// Number of untagged builds kept of a template.
    pub(crate) kept_max: usize,
}

/// Layers that have become unused, and builds that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleasedTemplates {
    /// Builds.
    pub(crate) builds: Vec<String>,
    /// Layers whose files can be removed.
    pub(crate) layers: Vec<String>,
}

/// Templates with their builds, tags and steps.
#[derive(Clone, Debug)]
pub(crate) struct TemplateTable(pub(super) TableAccess);

impl TemplateTable {
    /// Returns the time by the store's clock, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.0.store.now_ms()
    }

    /// Announces a build of the template named in `template`, which is created if it does not
    /// exist. Removes builds beyond the kept ones.
    ///
    /// # Errors
    /// `TooMany` if the tenant has reached its limit on templates.
    pub(crate) async fn announce(
        &self,
        template: TemplateRow,
        build: TemplateBuildRow,
        bounds: BuildBounds,
    ) -> Result<(TemplateRow, ReleasedTemplates), SessionError> {
        self.0.write("templates.announce", move |it| announce(it, &template, &build, bounds)).await
    }

    /// Returns a template of a tenant, by its name or id.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<TemplateRow>, SessionError> {
        let parameters = [text(tenant), text(name)];
        self.0.read("templates.get", move |it| find(it, &parameters)).await
    }

    /// Returns the templates of a tenant, by name.
    pub(crate) async fn list(&self, tenant: &str) -> Result<Vec<TemplateRow>, SessionError> {
        let sql = format!(
            "SELECT {TEMPLATE} FROM session_templates WHERE tenant = $1 ORDER BY name LIMIT $2"
        );
        let parameters = [text(tenant), limit(super::access::PAGE_MAX)];
        self.0
            .read("templates.list", move |it| {
                it.query(&sql, &parameters)?.iter().map(template_row).collect()
            })
            .await
    }

    /// Returns a build of a tenant.
    pub(crate) async fn build(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<TemplateBuildRow>, SessionError> {
        let sql =
            format!("SELECT {BUILD} FROM session_template_builds WHERE tenant = $1 AND id = $2");
        let parameters = [text(tenant), text(id)];
        self.0
            .read("templates.build", move |it| {
                it.query_one(&sql, &parameters)?.map(|found| build_row(&found)).transpose()
            })
            .await
    }

    /// Returns the builds of a template, newest first.
    pub(crate) async fn builds(
        &self,
        template: &str,
        count_max: usize,
    ) -> Result<Vec<TemplateBuildRow>, SessionError> {
        let (template, count_max) = (template.to_owned(), count_max);
        self.0.read("templates.builds", move |it| builds(it, &template, count_max)).await
    }

    /// Returns the tags of a template.
    pub(crate) async fn tags(&self, template: &str) -> Result<Vec<TemplateTagRow>, SessionError> {
        let template = template.to_owned();
        self.0.read("templates.tags", move |it| tags(it, &template)).await
    }

    /// Points tags at a build of a template, replacing their earlier builds.
    pub(crate) async fn tag(
        &self,
        build: &TemplateBuildRow,
        names: Vec<String>,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let build = build.clone();
        self.0.write_again("templates.tag", move |it| put_tags(it, &build, &names, now_ms)).await
    }

    /// Removes tags. Returns how many existed.
    pub(crate) async fn untag(
        &self,
        template: &str,
        names: Vec<String>,
    ) -> Result<u64, SessionError> {
        let template = text(template);
        self.0
            .write("templates.untag", move |it| {
                let sql = "DELETE FROM session_template_tags WHERE template = $1 AND tag = $2";
                let mut removed = 0;
                for name in &names {
                    removed += it.execute(sql, &[template.clone(), text(name)])?;
                }
                Ok(removed)
            })
            .await
    }

    /// Moves a waiting build to the building state over a chain. Returns false if it does not wait
    /// any more.
    ///
    /// # Errors
    /// `TooMany` if the tenant has reached its limit on running builds; `NotFound` for a layer.
    pub(crate) async fn begin_build(
        &self,
        row: TemplateBuildRow,
        running_max: u64,
        alive_ms: u64,
    ) -> Result<bool, SessionError> {
        self.0.write("templates.begin", move |it| begin(it, &row, running_max, alive_ms)).await
    }

    /// Returns the layers of the leading steps that exist without a gap. The build uses them from
    /// now on.
    pub(crate) async fn find_steps(
        &self,
        tenant: &str,
        build: &str,
        keys: Vec<String>,
    ) -> Result<Vec<String>, SessionError> {
        let (tenant, build) = (text(tenant), user(build));
        self.0
            .write_again("templates.find_steps", move |it| {
                let sql = "SELECT layer FROM session_template_steps JOIN session_layers \
                ON session_layers.id = session_template_steps.layer \
                WHERE session_template_steps.tenant = $1 AND step = $2";
                let mut found = Vec::new();
                for key in &keys {
                    let Some(row) = it.query_one(sql, &[tenant.clone(), text(key)])? else { break };
                    found.push(SessionColumns::of(&row).text()?);
                }
                begin_chain(it, &build, &found)?;
                Ok(found)
            })
            .await
    }

    /// Records the layer of a step, which the build uses and others find by the step's key.
    pub(crate) async fn insert_step(
        &self,
        build: &str,
        key: String,
        layer: LayerRow,
    ) -> Result<(), SessionError> {
        let build = user(build);
        self.0
            .write_again("templates.insert_step", move |it| {
                let sql = "INSERT INTO session_layers (id, tenant, bytes, created_ms) \
                VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING";
                let parameters = [
                    text(&layer.id),
                    text(&layer.tenant),
                    number(layer.bytes),
                    number(layer.created_ms),
                ];
                it.execute(sql, &parameters)?;
                begin_chain(it, &build, std::slice::from_ref(&layer.id))?;
                let sql = "DELETE FROM session_template_steps WHERE tenant = $1 AND step = $2";
                it.execute(sql, &[text(&layer.tenant), text(&key)])?;
                let sql =
                    "INSERT INTO session_template_steps (tenant, step, layer) VALUES ($1, $2, $3)";
                it.execute(sql, &[text(&layer.tenant), text(&key), text(&layer.id)]).map(drop)
            })
            .await
    }

    /// Records a build's progress. Returns false if the build was deleted, has ended otherwise, or
    /// belongs to another server.
    pub(crate) async fn write_build(
        &self,
        row: TemplateBuildRow,
        log: Vec<u8>,
        new_tags: Vec<String>,
    ) -> Result<bool, SessionError> {
        self.0.write_again("templates.write", move |it| {
            let sql = "UPDATE session_template_builds SET status = $2, detail = $3, chain = $4, \
                env = $5, updated_ms = $6, finished_ms = $7, log = $8 WHERE id = $1 AND owner = $9 \
                AND (status = 'building' OR status = $2)";
            let parameters = [
                text(&row.id),
                row.status.as_str().into(),
                json(&row.detail)?,
                json(&row.chain)?,
                row.env.as_ref().map_or(node::store::SqlValue::Null, |sealed| {
                    node::store::SqlValue::Blob(sealed.0.clone())
                }),
                number(row.updated_ms),
                number_or_null(row.finished_ms),
                node::store::SqlValue::Blob(log.clone()),
                text_or_null(row.owner.as_deref()),
            ];
            if it.execute(sql, &parameters)? == 0 {
                return Ok(false);
            }
            put_tags(it, &row, &new_tags, row.updated_ms)?;
            Ok(true)
        })
        .await
    }

    /// Returns the log of a build, as it was last written.
    pub(crate) async fn build_log(&self, id: &str) -> Result<Option<Vec<u8>>, SessionError> {
        let id = text(id);
        self.0
            .read("templates.log", move |it| {
                let sql = "SELECT log FROM session_template_builds WHERE id = $1";
                let found = it.query_one(sql, std::slice::from_ref(&id))?;
                found.map_or(Ok(None), |row| row.get::<Option<Vec<u8>>>(0))
            })
            .await
    }

    /// Returns builds that are running at a server, or at any server that has not written since
    /// `before_ms`.
    pub(crate) async fn builds_left(
        &self,
        server: &str,
        before_ms: u64,
    ) -> Result<Vec<TemplateBuildRow>, SessionError> {
        let sql = format!(
            "SELECT {BUILD} FROM session_template_builds \
             WHERE status = 'building' AND (owner = $1 OR updated_ms < $2) LIMIT $3"
        );
        let parameters = [text(server), number(before_ms), limit(super::access::PAGE_MAX)];
        self.0
            .read("templates.left", move |it| {
                it.query(&sql, &parameters)?.iter().map(build_row).collect()
            })
            .await
    }

    /// Deletes a template with its builds.
    pub(crate) async fn delete(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<ReleasedTemplates>, SessionError> {
        let parameters = [text(tenant), text(name)];
        self.0
            .write("templates.delete", move |it| {
                let Some(template) = find(it, &parameters)? else { return Ok(None) };
                let all = builds(it, &template.id, BUILDS_MAX)?;
                let released = release(it, all.into_iter().map(|build| build.id).collect())?;
                let id = [text(&template.id)];
                it.execute("DELETE FROM session_template_tags WHERE template = $1", &id)?;
                it.execute("DELETE FROM session_templates WHERE id = $1", &id)?;
                Ok(Some(released))
            })
            .await
    }

    /// Releases the layers of a build whose template was deleted meanwhile.
    pub(crate) async fn release_build(&self, id: &str) -> Result<ReleasedTemplates, SessionError> {
        let id = id.to_owned();
        self.0
            .write("templates.release", move |it| {
                let sql = "SELECT id FROM session_template_builds WHERE id = $1";
                match it.query_one(sql, &[text(&id)])? {
                    // The build has ended otherwise.
                    Some(_) => Ok(ReleasedTemplates::default()),
                    None => release(it, vec![id.clone()]),
                }
            })
            .await
    }

    /// Removes layer uses of builds that no longer exist, which a crashed server may have left.
    pub(crate) async fn forget_uses(&self) -> Result<u64, SessionError> {
        self.0.write_again("templates.forget_uses", |it| {
            let sql = "DELETE FROM session_layer_uses WHERE used_by LIKE 'template:%' AND NOT EXISTS \
                (SELECT 1 FROM session_template_builds \
                WHERE 'template:' || session_template_builds.id = session_layer_uses.used_by)";
            it.execute(sql, &[])
        })
        .await
    }
}

/// Archives that steps of templates copy from.
#[derive(Clone, Debug)]
pub(crate) struct TemplateArchiveTable(pub(super) TableAccess);

impl TemplateArchiveTable {
    /// Returns the time by the store's clock, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.0.store.now_ms()
    }

    /// Stores an archive. Returns the row that it replaces.
    pub(crate) async fn put(
        &self,
        row: TemplateArchiveRow,
    ) -> Result<Option<TemplateArchiveRow>, SessionError> {
        self.0.write("templates.put_archive", move |it| {
            let id = [text(&row.tenant), text(&row.name)];
            let before = archive(it, &id)?;
            it.execute(
                "DELETE FROM session_template_archives WHERE tenant = $1 AND name = $2",
                &id,
            )?;
            let sql = format!(
                "INSERT INTO session_template_archives ({ARCHIVE}) VALUES ($1, $2, $3, $4, $5, $6)"
            );
            let [tenant, name] = id;
            let parameters = [
                tenant,
                name,
                text(&row.objects),
                number(row.pieces),
                number(row.bytes),
                number(row.used_ms),
            ];
            it.execute(&sql, &parameters)?;
            Ok(before)
        })
        .await
    }

    /// Returns an archive and marks it as used now.
    pub(crate) async fn touch(
        &self,
        tenant: &str,
        name: &str,
        now_ms: u64,
    ) -> Result<Option<TemplateArchiveRow>, SessionError> {
        let id = [text(tenant), text(name)];
        self.0
            .write_again("templates.use_archive", move |it| {
                let [tenant, name] = id.clone();
                let sql = "UPDATE session_template_archives SET used_ms = $3 \
                WHERE tenant = $1 AND name = $2";
                it.execute(sql, &[tenant, name, number(now_ms)])?;
                archive(it, &id)
            })
            .await
    }

    /// Removes archives that were unused since `before_ms`, and returns them.
    pub(crate) async fn take_unused(
        &self,
        before_ms: u64,
        count_max: usize,
    ) -> Result<Vec<TemplateArchiveRow>, SessionError> {
        let parameters = [number(before_ms), limit(count_max)];
        self.0
            .write("templates.take_archives", move |it| {
                let sql = format!(
                    "SELECT {ARCHIVE} FROM session_template_archives WHERE used_ms < $1 LIMIT $2"
                );
                let found = it.query(&sql, &parameters)?;
                let found: Vec<TemplateArchiveRow> =
                    found.iter().map(archive_row).collect::<Result<_, _>>()?;
                for row in &found {
                    let sql =
                        "DELETE FROM session_template_archives WHERE tenant = $1 AND name = $2";
                    it.execute(sql, &[text(&row.tenant), text(&row.name)])?;
                }
                Ok(found)
            })
            .await
    }
}

/// Returns the name of a build among the users of layers.
fn user(build: &str) -> String {
    format!("template:{build}")
}

fn find(
    it: &mut dyn StoreTransaction,
    of: &[node::store::SqlValue; 2],
) -> Result<Option<TemplateRow>, SqlStoreError> {
    let sql = format!(
        "SELECT {TEMPLATE} FROM session_templates WHERE tenant = $1 AND (name = $2 OR id = $2)"
    );
    it.query_one(&sql, of)?.map(|found| template_row(&found)).transpose()
}

fn builds(
    it: &mut dyn StoreTransaction,
    template: &str,
    count_max: usize,
) -> Result<Vec<TemplateBuildRow>, SqlStoreError> {
    let sql = format!(
        "SELECT {BUILD} FROM session_template_builds WHERE template = $1 \
         ORDER BY created_ms DESC, id DESC LIMIT $2"
    );
    it.query(&sql, &[text(template), limit(count_max)])?.iter().map(build_row).collect()
}

fn tags(
    it: &mut dyn StoreTransaction,
    template: &str,
) -> Result<Vec<TemplateTagRow>, SqlStoreError> {
    let sql = "SELECT tag, build, created_ms FROM session_template_tags WHERE template = $1 \
        ORDER BY tag LIMIT $2";
    let found = it.query(sql, &[text(template), limit(super::access::PAGE_MAX)])?;
    let row = |row: &SqlRow| {
        let mut columns = SessionColumns::of(row);
        Ok(TemplateTagRow {
            tag: columns.text()?,
            build: columns.text()?,
            created_ms: columns.take()?,
        })
    };
    found.iter().map(row).collect()
}

fn announce(
    it: &mut dyn StoreTransaction,
    template: &TemplateRow,
    build: &TemplateBuildRow,
    bounds: BuildBounds,
) -> Result<(TemplateRow, ReleasedTemplates), SqlStoreError> {
    let known = find(it, &[text(&template.tenant), text(&template.name)])?;
    let row = match known {
        Some(known) => {
            let sql = "UPDATE session_templates SET updated_ms = $2 WHERE id = $1";
            it.execute(sql, &[text(&known.id), number(template.updated_ms)])?;
            known
        }
        None => {
            insert_template(it, template, bounds.templates_max)?;
            template.clone()
        }
    };
    let sql = format!(
        "INSERT INTO session_template_builds ({BUILD}) \
         VALUES ($1, $2, $3, $4, $5, $6, NULL, NULL, $7, $8, NULL)"
    );
    let parameters = [
        text(&build.id),
        text(&row.id),
        text(&build.tenant),
        build.status.as_str().into(),
        json(&build.detail)?,
        json(&build.chain)?,
        number(build.created_ms),
        number(build.updated_ms),
    ];
    it.execute(&sql, &parameters)?;
    let tagged: Vec<String> = tags(it, &row.id)?.into_iter().map(|tag| tag.build).collect();
    let others = builds(it, &row.id, BUILDS_MAX)?;
    let spare = others.into_iter().filter(|other| {
        !tagged.contains(&other.id) && other.status != TemplateBuildStatus::Building
    });
    let beyond = spare.skip(bounds.kept_max).map(|build| build.id).collect();
    let released = release(it, beyond)?;
    Ok((row, released))
}

fn insert_template(
    it: &mut dyn StoreTransaction,
    template: &TemplateRow,
    templates_max: u64,
) -> Result<(), SqlStoreError> {
    let count = "SELECT COUNT(*) FROM session_templates WHERE tenant = $1";
    let count = it.query_one(count, &[text(&template.tenant)])?;
    if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= templates_max {
        let message = format!(
            "the tenant has {templates_max} templates, as many as it may \
             (sessions.templates.count_max_per_tenant); delete some first"
        );
        return Err(SqlStoreError::refuse(SessionError::TooMany(message)));
    }
    let sql = format!("INSERT INTO session_templates ({TEMPLATE}) VALUES ($1, $2, $3, $4, $5)");
    let parameters = [
        text(&template.id),
        text(&template.tenant),
        text(&template.name),
        number(template.created_ms),
        number(template.updated_ms),
    ];
    it.execute(&sql, &parameters).map(drop)
}

fn begin(
    it: &mut dyn StoreTransaction,
    row: &TemplateBuildRow,
    running_max: u64,
    alive_ms: u64,
) -> Result<bool, SqlStoreError> {
    let count = "SELECT COUNT(*) FROM session_template_builds \
        WHERE tenant = $1 AND status = 'building' AND updated_ms >= $2";
    let count = it.query_one(count, &[text(&row.tenant), number(alive_ms)])?;
    if count.map_or(Ok(0), |row| row.get::<u64>(0))? >= running_max {
        let message = format!(
            "the tenant has {running_max} builds of templates under way, as many as it may \
             (sessions.templates.builds_max_per_tenant); try again when one has ended"
        );
        return Err(SqlStoreError::refuse(SessionError::TooMany(message)));
    }
    let sql = "UPDATE session_template_builds SET status = 'building', owner = $2, detail = $3, \
        chain = $4, updated_ms = $5 WHERE id = $1 AND status = 'waiting'";
    let parameters = [
        text(&row.id),
        text_or_null(row.owner.as_deref()),
        json(&row.detail)?,
        json(&row.chain)?,
        number(row.updated_ms),
    ];
    if it.execute(sql, &parameters)? == 0 {
        return Ok(false);
    }
    use_chain(it, &user(&row.id), &row.chain)?;
    Ok(true)
}

fn put_tags(
    it: &mut dyn StoreTransaction,
    build: &TemplateBuildRow,
    names: &[String],
    now_ms: u64,
) -> Result<(), SqlStoreError> {
    for name in names {
        let parameters = [text(&build.template), text(name)];
        let sql = "DELETE FROM session_template_tags WHERE template = $1 AND tag = $2";
        it.execute(sql, &parameters)?;
        let [template, tag] = parameters;
        let sql = "INSERT INTO session_template_tags (template, tag, build, created_ms) \
            VALUES ($1, $2, $3, $4)";
        it.execute(sql, &[template, tag, text(&build.id), number(now_ms)])?;
    }
    Ok(())
}

/// Removes builds, and layers that become unused.
fn release(
    it: &mut dyn StoreTransaction,
    builds: Vec<String>,
) -> Result<ReleasedTemplates, SqlStoreError> {
    let mut layers = Vec::new();
    for build in &builds {
        let name = text(&user(build));
        let sql = "SELECT layer FROM session_layer_uses WHERE used_by = $1";
        for row in it.query(sql, std::slice::from_ref(&name))? {
            let layer = SessionColumns::of(&row).text()?;
            if !layers.contains(&layer) {
                layers.push(layer);
            }
        }
        it.execute("DELETE FROM session_layer_uses WHERE used_by = $1", &[name])?;
        it.execute("DELETE FROM session_template_builds WHERE id = $1", &[text(build)])?;
    }
    let mut released = ReleasedTemplates { builds, layers: Vec::new() };
    for layer in layers {
        let sql = "SELECT layer FROM session_layer_uses WHERE layer = $1 LIMIT 1";
        if it.query_one(sql, &[text(&layer)])?.is_none() {
            it.execute("DELETE FROM session_layers WHERE id = $1", &[text(&layer)])?;
            forget_steps(it, &layer)?;
            released.layers.push(layer);
        }
    }
    Ok(released)
}

/// Removes the step keys of a removed layer.
pub(super) fn forget_steps(
    it: &mut dyn StoreTransaction,
    layer: &str,
) -> Result<(), SqlStoreError> {
    it.execute("DELETE FROM session_template_steps WHERE layer = $1", &[text(layer)]).map(drop)
}

fn archive(
    it: &mut dyn StoreTransaction,
    id: &[node::store::SqlValue; 2],
) -> Result<Option<TemplateArchiveRow>, SqlStoreError> {
    let sql =
        format!("SELECT {ARCHIVE} FROM session_template_archives WHERE tenant = $1 AND name = $2");
    it.query_one(&sql, id)?.map(|found| archive_row(&found)).transpose()
}

fn template_row(row: &SqlRow) -> Result<TemplateRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(TemplateRow {
        id: columns.text()?,
        tenant: columns.text()?,
        name: columns.text()?,
        created_ms: columns.take()?,
        updated_ms: columns.take()?,
    })
}

fn build_row(row: &SqlRow) -> Result<TemplateBuildRow, SqlStoreError> {
    use TemplateBuildStatus as S;
    let mut columns = SessionColumns::of(row);
    Ok(TemplateBuildRow {
        id: columns.text()?,
        template: columns.text()?,
        tenant: columns.text()?,
        status: columns.word("a status", |word| {
            let all = [S::Waiting, S::Building, S::Ready, S::Error];
            all.into_iter().find(|status| status.as_str() == word)
        })?,
        detail: columns.json()?,
        chain: columns.json()?,
        env: columns.take::<Option<Vec<u8>>>()?.map(SealedBlob),
        owner: columns.text_or_null()?,
        created_ms: columns.take()?,
        updated_ms: columns.take()?,
        finished_ms: columns.take()?,
    })
}

fn archive_row(row: &SqlRow) -> Result<TemplateArchiveRow, SqlStoreError> {
    let mut columns = SessionColumns::of(row);
    Ok(TemplateArchiveRow {
        tenant: columns.text()?,
        name: columns.text()?,
        objects: columns.text()?,
        pieces: columns.take()?,
        bytes: columns.take()?,
        used_ms: columns.take()?,
    })
}
