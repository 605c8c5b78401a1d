package org.apache.iceberg;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * What Iceberg's own library makes of commits. Reads a line for each: a table's metadata (empty for
 * a table that is to be made), a tab, and a list of updates. Writes a line for each: the next
 * metadata, or an exception and its message.
 */
public class Oracle {
  public static void main(String[] args) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] parts = line.split("\t");
      out.println(answer(parts[0], mapper.readTree(parts[1])));
    }
    out.flush();
  }

  private static String answer(String base, JsonNode updates) {
    try {
      TableMetadata.Builder builder =
          base.isEmpty()
              ? TableMetadata.buildFromEmpty(version(updates))
              : TableMetadata.buildFrom(TableMetadataParser.fromJson("file:/base.json", base));
      for (JsonNode update : updates) {
        MetadataUpdateParser.fromJson(update).applyTo(builder);
      }
      return "done\t" + TableMetadataParser.toJson(builder.build());
    } catch (RuntimeException e) {
      String message = String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
      return "refused\t" + e.getClass().getSimpleName() + "\t" + message;
    }
  }

  private static int version(JsonNode updates) {
    for (JsonNode update : updates) {
      if (update.get("action").asText().equals("upgrade-format-version")) {
        return update.get("format-version").asInt();
      }
    }
    return TableMetadata.DEFAULT_TABLE_FORMAT_VERSION;
  }
}
