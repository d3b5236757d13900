package barriertck;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Spark's own file manager of checkpoints, except for the next few writes of any JVM of the query, which are disturbed.
 *
 * <p>What is to be done is told by files of one directory. Each file {@code token-N.TROUBLE.LATENCY} is one write that
 * is to be disturbed. Whoever manages to delete it disturbs a write, and adds a line to the file {@code struck}, with the
 * token's name. So as many writes are disturbed as there were tokens, whichever JVM writes, and each leaves a proof. The
 * newest token comes first: the write that proves a fault takes none of an earlier fault, which still lies in wait.
 */
public final class DisturbedWrites implements CheckpointFileManager {
  private static final String CLASS = "spark.sql.streaming.checkpointFileManagerClass";
  private static final String DIRECTORY = "barriertck.writes.directory";
  private static final String OTHER_CLASS = "barriertck.writes.otherClass";

  private final CheckpointFileManager files;
  private final java.nio.file.Path directory;

  public DisturbedWrites(Path path, Configuration configuration) {
    Configuration without = new Configuration(configuration);
    String other = without.get(OTHER_CLASS, "");
    if (other.isEmpty()) {
      without.unset(CLASS);
    } else {
      without.set(CLASS, other);
    }
    files = CheckpointFileManager.create(path, without);
    directory = Paths.get(configuration.get(DIRECTORY));
  }

  /** Writes a file, as the query does; returns what went wrong, or nothing. */
  public static String tryWrite(String file, Configuration configuration) {
    try {
      Path path = new Path(file);
      CancellableFSDataOutputStream out = CheckpointFileManager.create(path.getParent(), configuration)
          .createAtomic(path, true);
      try {
        out.write("a write that shows whether writes are disturbed\n".getBytes(StandardCharsets.UTF_8));
        out.close();
      } catch (IOException error) {
        out.cancel();
        throw error;
      }
      return "";
    } catch (IOException error) {
      return error.toString();
    } catch (RuntimeException error) {
      return error.toString();
    }
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    String[] trouble = nextTrouble(path);
    switch (trouble[0]) {
      case "slow":
        await(Long.parseLong(trouble[1]));
        return files.createAtomic(path, overwriteIfPossible);
      case "fails":
        throw DisturbedWrites.<RuntimeException>unchecked(new IOException(path + ": Input/output error"));
      case "full":
        return new Full(files.createAtomic(path, overwriteIfPossible), path);
      case "unsure":
        return new Unsure(files.createAtomic(path, overwriteIfPossible), path);
      default:
        return files.createAtomic(path, overwriteIfPossible);
    }
  }

  private String[] nextTrouble(Path path) {
    try (DirectoryStream<java.nio.file.Path> found = Files.newDirectoryStream(directory, "token-*")) {
      TreeSet<java.nio.file.Path> tokens = new TreeSet<>();
      found.forEach(tokens::add);
      for (java.nio.file.Path token : tokens.descendingSet()) {
        if (Files.deleteIfExists(token)) {
          String[] parts = token.getFileName().toString().split("\\.");
          String line = parts[0] + " " + parts[1] + " " + path.toUri().getPath() + "\n";
          Files.writeString(directory.resolve("struck"), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
          return new String[] {parts[1], parts[2]};
        }
      }
    } catch (NoSuchFileException | NotDirectoryException error) {
      // The trial is over, and a maintenance thread still writes.
    } catch (IOException error) {
      throw DisturbedWrites.<RuntimeException>unchecked(error);
    }
    return new String[] {"", ""};
  }

  private static void await(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  /** Java's compiler does not know that methods in Scala may throw everything. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E {
    throw (E) error;
  }

  /** Half of the first bytes find room. The file never gets its name. */
  private static final class Full extends CancellableFSDataOutputStream {
    private final CancellableFSDataOutputStream out;

    Full(CancellableFSDataOutputStream out, Path path) {
      super(new OutputStream() {
        @Override
        public void write(int one) throws IOException {
          throw full(path);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
          out.write(bytes, offset, length / 2);
          throw full(path);
        }

        @Override
        public void close() throws IOException {
          out.cancel();
          throw full(path);
        }
      });
      this.out = out;
    }

    private static IOException full(Path path) {
      return new IOException(path + ": No space left on device");
    }

    @Override
    public void cancel() {
      out.cancel();
    }
  }

  /** All is written and the file has its name, and yet whoever wrote it is told that it failed. */
  private static final class Unsure extends CancellableFSDataOutputStream {
    private final CancellableFSDataOutputStream out;

    Unsure(CancellableFSDataOutputStream out, Path path) {
      super(new OutputStream() {
        private boolean closed;

        @Override
        public void write(int one) throws IOException {
          out.write(one);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
          out.write(bytes, offset, length);
        }

        @Override
        public void flush() throws IOException {
          out.flush();
        }

        @Override
        public void close() throws IOException {
          if (!closed) {
            closed = true;
            out.close();
            throw new IOException(path + ": Connection reset, after the file was written");
          }
        }
      });
      this.out = out;
    }

    @Override
    public void cancel() {
      out.cancel();
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    return files.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return files.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    files.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    return files.exists(path);
  }

  @Override
  public void delete(Path path) {
    files.delete(path);
  }

  @Override
  public boolean isLocal() {
    return files.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return files.createCheckpointDirectory();
  }

  /** Closes Spark's own; that of Spark 4.0 has no such method. */
  public void close() {
    try {
      CheckpointFileManager.class.getMethod("close").invoke(files);
    } catch (NoSuchMethodException none) {
      return;
    } catch (InvocationTargetException error) {
      throw DisturbedWrites.<RuntimeException>unchecked(error.getCause());
    } catch (IllegalAccessException error) {
      throw new IllegalStateException(error);
    }
  }
}
