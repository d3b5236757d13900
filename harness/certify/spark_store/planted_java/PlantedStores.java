package barriertck;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.BoxedUnit;

/**
 * Planted bugs: Spark's own state stores, each with one mistake. They are compiled when they are needed.
 *
 * <p>A mistake stands between the caller and the store that Spark made. All other calls go through unchanged.
 */
public final class PlantedStores {
  private static final Pattern SHARED_FILE = Pattern.compile("\"dfsSstFileName\":\"([^\"]+)\"");

  private PlantedStores() {}

  /** What stands between the caller and a store. */
  interface Between {
    Object call(StateStore store, Method method, Object[] arguments) throws Throwable;
  }

  static StateStore between(StateStore store, Between between) {
    return (StateStore)
        Proxy.newProxyInstance(
            PlantedStores.class.getClassLoader(),
            new Class<?>[] {StateStore.class},
            (self, method, arguments) -> between.call(store, method, arguments));
  }

  static Object unchanged(Object target, Method method, Object[] arguments) throws Throwable {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  static boolean is(Method method, String name) {
    return method.getName().equals(name);
  }

  /** A write that was kept for later, as copies of the rows unless the mistake is not to copy them. */
  record Put(UnsafeRow key, UnsafeRow value, String family) {
    static Put copied(Object[] arguments) {
      return new Put(
          ((UnsafeRow) arguments[0]).copy(), ((UnsafeRow) arguments[1]).copy(), (String) arguments[2]);
    }

    void make(StateStore store) {
      store.put(key, value, family);
    }
  }

  static File directory(StateStoreId id) {
    return new File(id.storeCheckpointLocation().toUri().getPath());
  }

  /** Delete a file as a remote file system would: Hadoop's local checksum goes with it. */
  static void delete(File file) throws IOException {
    Files.deleteIfExists(file.toPath());
    Files.deleteIfExists(new File(file.getParentFile(), "." + file.getName() + ".crc").toPath());
  }

  static List<String> names(File directory, String ending) {
    String[] found = directory.list((parent, name) -> name.endsWith(ending) && !name.startsWith("."));
    return found == null ? List.of() : List.copyOf(new TreeSet<>(List.of(found)));
  }

  static long newest(File directory, String ending) {
    return names(directory, ending).stream()
        .mapToLong(name -> Long.parseLong(name.substring(0, name.length() - ending.length())))
        .max()
        .orElse(0);
  }

  /** Return what a snapshot of RocksDB says about its files. */
  static String metadata(File snapshot) throws IOException {
    try (ZipFile zip = new ZipFile(snapshot)) {
      ZipEntry entry = zip.getEntry("metadata");
      return new String(zip.getInputStream(entry).readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /** Return the shared files to which a snapshot of RocksDB refers, in the order of their names. */
  static TreeSet<String> filesOf(File snapshot) throws IOException {
    TreeSet<String> files = new TreeSet<>();
    Matcher matcher = SHARED_FILE.matcher(metadata(snapshot));
    while (matcher.find()) {
      files.add(matcher.group(1));
    }
    return files;
  }

  /** The last put before a commit is buffered and not written. */
  public static final class LosesTheLastPut extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      Put[] last = new Put[1];
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            Put held = last[0];
            last[0] = is(method, "put") ? Put.copied(arguments) : null;
            if (held != null && !is(method, "commit")) {
              held.make(store);
            }
            return is(method, "put") ? null : unchanged(store, method, arguments);
          });
    }
  }

  /** Rows of the caller are buffered without a copy, and the caller uses them again. */
  public static final class KeepsTheRowsOfTheCaller extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      List<Put> kept = new ArrayList<>();
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "put")) {
              kept.add(
                  new Put((UnsafeRow) arguments[0], (UnsafeRow) arguments[1], (String) arguments[2]));
              return null;
            }
            kept.forEach(put -> put.make(store));
            kept.clear();
            return unchanged(store, method, arguments);
          });
    }
  }

  /** What an aborted batch wrote is still in a buffer when the next batch begins. */
  public static final class AbortKeepsWrites extends HDFSBackedStateStoreProvider {
    private final List<Put> kept = new ArrayList<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      StateStore opened = super.getStore(version, id, snapshot, empty);
      kept.forEach(put -> put.make(opened));
      kept.clear();
      List<Put> own = new ArrayList<>();
      return between(
          opened,
          (store, method, arguments) -> {
            if (is(method, "put")) {
              own.add(Put.copied(arguments));
            } else if (is(method, "abort")) {
              kept.addAll(own);
            }
            return unchanged(store, method, arguments);
          });
    }
  }

  /** Let a batch write to the table of the version on which it is based, not to a copy. */
  static void shareTable(HDFSBackedStateStoreProvider provider, long version, StateStore store) {
    try {
      Field table = null;
      for (Field field : store.getClass().getDeclaredFields()) {
        table = field.getName().endsWith("mapToUpdate") ? field : table;
      }
      Method tables = null;
      for (Method method : HDFSBackedStateStoreProvider.class.getMethods()) {
        tables = method.getName().endsWith("$loadedMaps") ? method : tables;
      }
      table.setAccessible(true);
      @SuppressWarnings("unchecked")
      Map<Object, Object> loaded = (Map<Object, Object>) tables.invoke(provider);
      loaded.put(version, table.get(store));
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  /** BE-01: a batch writes to the table of the version on which it is based, not to a copy. */
  public static final class SharesItsTable extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      StateStore store = super.getStore(version, id, snapshot, empty);
      shareTable(this, version, store);
      return store;
    }
  }

  /** BE-07: an aborted batch gives its copy of the table back twice, so that the batches after it get none. */
  public static final class AbortGivesBackTwice extends HDFSBackedStateStoreProvider {
    private boolean givenBackTwice = false;

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      StateStore opened = super.getStore(version, id, snapshot, empty);
      if (givenBackTwice) {
        shareTable(this, version, opened);
      }
      return between(
          opened,
          (store, method, arguments) -> {
            givenBackTwice = givenBackTwice || is(method, "abort");
            return unchanged(store, method, arguments);
          });
    }
  }

  /** BE-06, SPARK-18342: a file was not renamed into place, and the result that says so is not read. */
  public static final class IgnoresAFailedRename extends HDFSBackedStateStoreProvider {
    private int commits = 0;

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            Object result = unchanged(store, method, arguments);
            if (is(method, "commit") && ++commits % 2 == 0) {
              delete(new File(directory(stateStoreId()), result + ".delta"));
            }
            return result;
          });
    }
  }

  /** The version after the one that was asked for is loaded, if it is there. */
  public static final class LoadsTheNextVersion extends HDFSBackedStateStoreProvider {
    @Override
    public ReadStateStore getReadStore(long version, Option<String> id) {
      boolean later = new File(directory(stateStoreId()), (version + 1) + ".delta").exists();
      return super.getReadStore(later ? version + 1 : version, id);
    }
  }

  /** A commit that failed is taken for one that is done. */
  public static final class TakesAFailedCommitForDone extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            try {
              return unchanged(store, method, arguments);
            } catch (Exception error) {
              if (!is(method, "commit")) {
                throw error;
              }
              return version + 1;
            }
          });
    }
  }

  /** If a version cannot be loaded, the one before is served instead. */
  public static final class ServesAnOlderVersion extends HDFSBackedStateStoreProvider {
    @Override
    public ReadStateStore getReadStore(long version, Option<String> id) {
      try {
        return super.getReadStore(version, id);
      } catch (Exception error) {
        if (version == 0) {
          throw error;
        }
        return getReadStore(version - 1, id);
      }
    }

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      try {
        return super.getStore(version, id, snapshot, empty);
      } catch (Exception error) {
        if (version == 0) {
          throw error;
        }
        return getStore(version - 1, id, snapshot, empty);
      }
    }
  }

  /** A prefix scan begins behind its first key. */
  public static final class PrefixScanMissesARow extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(super.getStore(version, id, snapshot, empty), PlantedStores::withoutTheFirst);
    }
  }

  /** A range scan does not give the key with which it begins. */
  public static final class RangeScanMissesItsStart extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(super.getStore(version, id, snapshot, empty), PlantedStores::withoutTheFirst);
    }
  }

  static Object withoutTheFirst(StateStore store, Method method, Object[] arguments) throws Throwable {
    Object result = unchanged(store, method, arguments);
    if ((is(method, "prefixScan") || is(method, "rangeScan")) && ((Iterator<?>) result).hasNext()) {
      ((Iterator<?>) result).next();
    }
    return result;
  }

  /** Maintenance takes one version too many for old. */
  public static final class DeletesARetainedVersion extends HDFSBackedStateStoreProvider {
    @Override
    public void doMaintenance() {
      super.doMaintenance();
      File directory = directory(stateStoreId());
      try {
        long newest = newest(directory, ".delta");
        delete(new File(directory, (newest - 1) + ".delta"));
        delete(new File(directory, (newest - 1) + ".snapshot"));
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  /** A version is published with half of its writes, and again with all of them. */
  public static final class PublishesInTwoParts extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      List<Put> puts = new ArrayList<>();
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "put")) {
              puts.add(Put.copied(arguments));
            } else if (is(method, "commit")) {
              StateStore half = super.getStore(version, id, snapshot, empty);
              puts.subList(0, puts.size() / 2).forEach(put -> put.make(half));
              half.commit();
              Thread.sleep(500);
            }
            return unchanged(store, method, arguments);
          });
    }
  }

  /** A removal is made in the store, but not written to the changelog. */
  public static final class RemovesOutsideTheChangelog extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (!is(method, "remove")) {
              return unchanged(store, method, arguments);
            }
            Field field = RocksDB.class.getDeclaredField("changelogWriter");
            field.setAccessible(true);
            Object writer = field.get(rocksDB());
            field.set(rocksDB(), Option.empty());
            try {
              return unchanged(store, method, arguments);
            } finally {
              field.set(rocksDB(), writer);
            }
          });
    }
  }

  /** BE-09: a read in a family falls through to the default family. */
  public static final class ReadsTheDefaultFamily extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            Object result = unchanged(store, method, arguments);
            if (result == null && is(method, "get") && !arguments[1].equals("default")) {
              return store.get((UnsafeRow) arguments[0], "default");
            }
            return result;
          });
    }
  }

  /** A merge overwrites the values that are there. */
  public static final class MergeOverwrites extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "merge")) {
              Put.copied(arguments).make(store);
              return null;
            }
            return unchanged(store, method, arguments);
          });
    }
  }

  /** A column family that is removed keeps its keys. */
  public static final class KeepsARemovedFamily extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) ->
              is(method, "removeColFamilyIfExists") ? false : unchanged(store, method, arguments));
    }
  }

  /** Of equal values that are merged only one is kept. */
  public static final class MergesEqualValuesOnce extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "merge")) {
              Iterator<UnsafeRow> values =
                  store.valuesIterator((UnsafeRow) arguments[0], (String) arguments[2]);
              boolean known = false;
              while (values.hasNext()) {
                known |= values.next().equals(arguments[1]);
              }
              if (known) {
                return null;
              }
            }
            return unchanged(store, method, arguments);
          });
    }
  }

  /** IN-01: a snapshot is published before the files to which it refers; they follow with the next batch. */
  public static final class PublishesBeforeItsFiles extends RocksDBStateStoreProvider {
    private final Map<File, byte[]> late = new TreeMap<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      File shared = new File(directory(stateStoreId()), "SSTs");
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (!is(method, "commit")) {
              return unchanged(store, method, arguments);
            }
            for (Map.Entry<File, byte[]> one : late.entrySet()) {
              Files.write(one.getKey().toPath(), one.getValue());
            }
            late.clear();
            List<String> before = names(shared, ".sst");
            Object result = unchanged(store, method, arguments);
            for (String name : names(shared, ".sst")) {
              File file = new File(shared, name);
              if (!before.contains(name)) {
                late.put(file, Files.readAllBytes(file.toPath()));
                delete(file);
              }
            }
            return result;
          });
    }
  }

  /**
   * IN-02: old snapshots give up their files late, when another executor has counted who uses a file. Its counts know
   * nothing of these snapshots any more, and become too low.
   */
  public static final class GivesUpFilesTwice extends RocksDBStateStoreProvider {
    private static final Map<String, List<String>> PENDING = new ConcurrentHashMap<>();
    private boolean counted = false;

    @Override
    public void doMaintenance() {
      File directory = directory(stateStoreId());
      try {
        Map<String, TreeSet<String>> dropped = new TreeMap<>();
        for (String name : names(directory, ".zip")) {
          dropped.put(name, filesOf(new File(directory, name)));
        }
        super.doMaintenance();
        Map<String, Integer> users = new TreeMap<>();
        for (String name : names(directory, ".zip")) {
          filesOf(new File(directory, name)).forEach(file -> users.merge(file, 1, Integer::sum));
          dropped.remove(name);
        }
        List<String> pending = PENDING.computeIfAbsent(directory.getPath(), unknown -> new ArrayList<>());
        if (!counted) {
          counted = true;
          for (String file : pending) {
            if (users.merge(file, -1, Integer::sum) <= 0) {
              delete(new File(new File(directory, "SSTs"), file));
            }
          }
          pending.clear();
        }
        dropped.values().forEach(pending::addAll);
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  /** IN-03: an aborted batch deletes files that committed versions share with it. */
  public static final class AbortDeletesSharedFiles extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "abort")) {
              File shared = new File(directory(stateStoreId()), "SSTs");
              for (String name : names(shared, ".sst")) {
                delete(new File(shared, name));
              }
            }
            return unchanged(store, method, arguments);
          });
    }
  }

  /**
   * IN-09, SPARK-55892: a snapshot is uploaded late, and refers to files of older snapshots that the maintenance of another
   * executor has deleted.
   *
   * <p>Spark uploads such files once more since this was mended. Here they are gone again, as they were before.
   */
  public static final class UploadsALateSnapshot extends RocksDBStateStoreProvider {
    private static final Map<String, Integer> MAINTENANCES = new ConcurrentHashMap<>();
    private int own = 0;
    private int othersAtCommit = 0;

    private int others() {
      return MAINTENANCES.getOrDefault(directory(stateStoreId()).getPath(), 0) - own;
    }

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            Object result = unchanged(store, method, arguments);
            othersAtCommit = is(method, "commit") ? others() : othersAtCommit;
            return result;
          });
    }

    @Override
    public void doMaintenance() {
      File directory = directory(stateStoreId());
      List<String> before = names(directory, ".zip");
      boolean late = others() > othersAtCommit;
      super.doMaintenance();
      own++;
      MAINTENANCES.merge(directory.getPath(), 1, Integer::sum);
      try {
        for (String name : names(directory, ".zip")) {
          if (late && !before.contains(name)) {
            deleteReused(directory, name);
          }
        }
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }

    /** Delete all files to which a snapshot refers but the newest, which is its own. */
    private static void deleteReused(File directory, String snapshot) throws IOException {
      TreeSet<String> files = filesOf(new File(directory, snapshot));
      files.pollLast();
      for (String file : files) {
        delete(new File(new File(directory, "SSTs"), file));
      }
    }
  }

  /** Maintenance deletes nothing. */
  public static final class DeletesNothing extends HDFSBackedStateStoreProvider {
    @Override
    public void doMaintenance() {
      File directory = directory(stateStoreId());
      Map<String, byte[]> before = new TreeMap<>();
      try {
        for (String name : names(directory, "")) {
          before.put(name, Files.readAllBytes(new File(directory, name).toPath()));
        }
        super.doMaintenance();
        for (Map.Entry<String, byte[]> one : before.entrySet()) {
          Files.write(new File(directory, one.getKey()).toPath(), one.getValue());
        }
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  /** IN-07: what a batch had uploaded before it was aborted stays for ever. */
  public static final class LeavesAbortedUploads extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "abort")) {
              File uploaded = new File(directory(stateStoreId()), "aborted-" + System.nanoTime());
              Files.write(uploaded.toPath(), new byte[] {1});
            }
            return unchanged(store, method, arguments);
          });
    }
  }

  /** IN-05: maintenance deletes shared files that another executor has uploaded. */
  public static final class DeletesFilesOfOthers extends RocksDBStateStoreProvider {
    private final TreeSet<String> own = new TreeSet<>();

    private File shared() {
      return new File(directory(stateStoreId()), "SSTs");
    }

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            List<String> before = names(shared(), ".sst");
            Object result = unchanged(store, method, arguments);
            if (is(method, "commit")) {
              names(shared(), ".sst").stream().filter(name -> !before.contains(name)).forEach(own::add);
            }
            return result;
          });
    }

    @Override
    public void doMaintenance() {
      super.doMaintenance();
      try {
        for (String name : names(shared(), ".sst")) {
          if (!own.contains(name)) {
            delete(new File(shared(), name));
          }
        }
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  /** IN-06: two executors give different files the same name, and the registry of files keeps the first. */
  public static final class TakesFilesForTheSame extends RocksDBStateStoreProvider {
    private static final Map<String, String> FIRST = new ConcurrentHashMap<>();
    private static final Pattern FILE =
        Pattern.compile("\"localFileName\":\"([^\"]+)\",\"dfsSstFileName\":\"([^\"]+)\"");

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            Object result = unchanged(store, method, arguments);
            if (is(method, "commit")) {
              takeTheFirst(directory(stateStoreId()), result + ".zip");
            }
            return result;
          });
    }

    private static void takeTheFirst(File directory, String snapshot) throws IOException {
      File shared = new File(directory, "SSTs");
      Matcher matcher = FILE.matcher(metadata(new File(directory, snapshot)));
      while (matcher.find()) {
        String first = FIRST.putIfAbsent(directory.getPath() + matcher.group(1), matcher.group(2));
        File taken = new File(shared, first == null ? matcher.group(2) : first);
        File own = new File(shared, matcher.group(2));
        if (!taken.equals(own) && taken.exists()) {
          byte[] content = Files.readAllBytes(taken.toPath());
          delete(own);
          Files.write(own.toPath(), content);
        }
      }
    }
  }

  /** BE-03: an executor that restores a version finds the keys of the first family only. */
  public static final class RestoresOneFamily extends RocksDBStateStoreProvider {
    private boolean committed = false;

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (!committed && version > 0 && is(method, "get") && !arguments[1].equals("default")) {
              return null;
            }
            committed = committed || is(method, "commit");
            return unchanged(store, method, arguments);
          });
    }
  }

  /** A batch is written a hundred rows at a time, and only the first hundred. */
  public static final class WritesAHundredRows extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      int[] written = new int[1];
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) ->
              is(method, "put") && ++written[0] > 100 ? null : unchanged(store, method, arguments));
    }
  }

  /** Of a long key the beginning counts only. */
  public static final class CutsLongKeys extends HDFSBackedStateStoreProvider {
    private static final int LONG = 256;
    private final Map<String, UnsafeRow> known = new ConcurrentHashMap<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (is(method, "put") || is(method, "get") || is(method, "remove")) {
              arguments[0] = cut((UnsafeRow) arguments[0]);
            }
            return unchanged(store, method, arguments);
          });
    }

    private UnsafeRow cut(UnsafeRow key) {
      byte[] bytes = key.getBytes();
      if (bytes.length <= LONG) {
        return key;
      }
      String beginning = new String(bytes, 0, LONG, StandardCharsets.ISO_8859_1);
      return known.computeIfAbsent(bytes.length + beginning, unknown -> key.copy());
    }
  }

  /** An iterator counts the rows that it has passed: if one is removed meanwhile, it passes over another. */
  public static final class IteratesByPosition extends HDFSBackedStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) ->
              is(method, "iterator")
                  ? new StateStoreIterator<>(
                      new ByPosition(store, (String) arguments[0]), () -> BoxedUnit.UNIT)
                  : unchanged(store, method, arguments));
    }
  }

  private static final class ByPosition extends AbstractIterator<UnsafeRowPair> {
    private final StateStore store;
    private final String family;
    private int passed = 0;

    ByPosition(StateStore store, String family) {
      this.store = store;
      this.family = family;
    }

    private Iterator<UnsafeRowPair> rest() {
      return store.iterator(family).drop(passed);
    }

    @Override
    public boolean hasNext() {
      return rest().hasNext();
    }

    @Override
    public UnsafeRowPair next() {
      UnsafeRowPair pair = rest().next();
      passed++;
      return pair;
    }
  }
}
