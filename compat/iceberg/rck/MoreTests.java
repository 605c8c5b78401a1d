package org.apache.iceberg.rest;

/** What the kit leaves out for every catalog, although its client knows it: levels below levels, and slashes. */
public class MoreTests extends RESTCompatibilityKitCatalogTests {
  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }
}
